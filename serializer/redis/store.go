// Package redis keeps the tickets of [serializer] in Redis or Valkey, so that callers on many
// machines enter one after another, in order of arrival.
//
// docs/libraries.md has a whole program. A server on which nobody has had a queue yet, or that
// has lost its data, lets nobody in for one [Options.TTL]: others may hold turns of which it
// does not know.
//
// The package does not depend on Caddy. The Go module caddy-orderly/modules/redis makes it an
// engine of the Caddy plugin.
package redis

import (
	"sync/atomic"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Store keeps tickets on a Redis server, for any number of machines.
//
// # How it works
//
// Each request is one call of a script (script.lua), which Redis carries out alone. It makes
// tickets and takes others out, and writes that into a log, as one entry with a version. It
// answers with all entries that the process has not seen: so a process learns of all smaller
// tickets before its own. Entries are also published. Each process asks a few times a second
// in any case, which renews its session, and makes up for messages that were lost.
//
// After a session's deadline, the first request of any process takes its tickets out, in the script. The
// clock of deadlines is counted by the script, from the server's. It jumps neither with a
// clock that is set nor with a server that stood still. The process has an earlier deadline;
// see package lease.
//
// # Why it is safe, and how far
//
// A process sends version and tag of the last entry that it has seen. No two entries have the
// same tag. If the log lacks it, the server has another history: it was restarted without its
// last changes, or a replica without them has taken over. The process then gives its session up.
// By its run ID, and the ID of the server that it was a replica of, the script notices another
// server. A process that has had a session begins none in another history on a server that ran
// beside the old one for two seconds: others may be inside there. Nobody gets a ticket there for
// the longest time to live in use: by then, each process that knows more has noticed. The same
// holds if a server has lost its last changes while it ran, from when the first process has
// noticed. So while all processes run and use one server, no two are inside. Numbers go on from
// the server's clock in microseconds, or from the greatest that a process knows.
//
// If two servers take themselves for the master, the processes of each let callers in.
//
// # What was rejected
//
//   - Keys that expire: Redis's clock can be set, and a replica's may differ.
//   - Blocking pops, and Redlock: they have no order.
type Store struct {
	*lease.Store
	servers *servers
	slots   chan struct{} // requests by session.do; half of the connections are left for polls and arrivals
	history string        // of the last session; empty before the first. Start alone uses it
	heard   atomic.Int64  // when the last answer came that knew it, by Uptime
	known   uint64        // the greatest number that this process has seen; Mu guards it
}
