// Package serializer admits callers one after another, in order of arrival.
//
// # Entering
//
// A program needs an [Engine] on a store, and describes each caller with an [Arrival]:
//
//	store, err := lockfile.Open("/var/lib/nightly", lockfile.Options{})
//	engine := serializer.New(store, serializer.Options{})
//	err = engine.Do(ctx, serializer.Arrival{Queue: "import"}, work)
//
// [Engine.Do] runs a function inside. [Engine.Enter] returns a [Turn] instead, and the caller
// calls [Turn.Leave]. Both return a [*Refused] if the turn never comes, for one of the
// reasons of [Reasons]. [Turn.Context] ends if the turn is taken back. [Engine.Arrive] and
// [Engine.Join] are for callers that do not want to wait in their own goroutine.
//
// There is one rule of admission, strictly first come, first served; see [Rule]. At most
// Rule.Limit arrivals are inside. Shared ones (readers) may be inside together, exclusive
// ones (writers) never with readers.
//
// [Engine.Queues], [Engine.Evict], [Engine.Pause] and [Engine.Resume] are for operators.
//
// # Stores
//
// A store keeps the tickets where other processes see them:
//
//   - package lockfile, for any number of processes on one machine: each ticket is a lock
//     file in a directory, in the format of Apache's mod_serializer.
//   - package memory, for one process, without a disk.
//   - etcd, redis and postgres, for many machines: Go modules of their own, such as
//     github.com/orderly-http/caddy-orderly/serializer/etcd.
//
// The package does not depend on HTTP. The Caddy plugin in this repository uses it. So
// can a cron job that must not overlap with itself, or with the requests of that Caddy.
//
// # For stores only
//
// The author of a store needs [Store], [Events], [Ticket], [Owner], [Immediate], [Lease],
// [NewTicket] and [ReservedPrefix]. Callers do not.
package serializer
