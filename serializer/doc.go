// Package serializer admits callers one after another, in order of arrival.
//
// A caller describes itself with an [Arrival] and asks an [Engine] for its turn.
// [Engine.Enter] returns a [Turn] when the turn has come, or a [*Refused] that says why
// it never will. The caller does its work and calls [Turn.Leave].
//
// The engine keeps the order. A [Store] keeps the tickets where other processes see them:
//
//   - package lockfile, for any number of processes on one machine: each ticket is a lock
//     file in a directory, in the format of Apache's mod_serializer.
//   - package memory, for one process, without a disk.
//   - etcd, redis and postgres, for many machines: Go modules of their own, such as
//     github.com/orderly-http/caddy-orderly/serializer/etcd.
//
// There is one rule of admission, strictly first come, first served; see [Rule]. At most
// [Rule.Limit] arrivals are inside. Shared ones (readers) may be inside together, exclusive
// ones (writers) never with readers.
//
// The package does not depend on HTTP. The Caddy plugin in this repository uses it. So
// can a cron job that must not overlap with itself, or with the requests of that Caddy.
package serializer
