// Package serializer lets callers in one after the other, in the order they came.
//
// A caller describes itself with an [Arrival] and asks an [Engine] for its
// turn. [Engine.Enter] returns a [Turn] when the turn has come, or a
// [*Refused] that says why it never will. The caller does its work and calls
// [Turn.Leave].
//
// Three engines keep the order:
//
//   - [File], for any number of processes on one machine: each arrival is a
//     lock file in a directory, in the format of Apache's mod_serializer.
//   - [Memory], for one process, without a disk.
//   - etcd, for many machines: the module
//     github.com/orderly-http/caddy-orderly/serializer/etcd.
//
// All three follow one rule of admission, see [Rule]: strictly first come,
// first served, with at most [Rule.Limit] inside, and shared arrivals (readers)
// side by side while exclusive ones (writers) are alone.
//
// The package knows nothing of HTTP. The Caddy plugin in the parent directory
// is one user of it; a cron job that must not overlap with itself, or with the
// requests of that Caddy, is another.
package serializer
