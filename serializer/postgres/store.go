// Package postgres keeps the tickets of [serializer] in a PostgreSQL database, so that
// callers on many machines enter one after another, in order of arrival.
//
// docs/libraries.md has a whole program, on another store of the kind. The package does not
// depend on Caddy. The Go module caddy-orderly/modules/postgres makes it an engine of the Caddy
// plugin.
package postgres

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Store keeps tickets in a PostgreSQL database, for any number of machines.
//
// # How it works
//
// A ticket is a row. Each transaction that changes something first locks the row of its
// namespace and increments the number there, which is at least the server's clock in
// microseconds. So numbers are committed in order, which those of a sequence are not. The
// number is also the version of all that the transaction changes. A ticket that is out is a
// row that says so, and is deleted some seconds later.
//
// One goroutine of the process, in round, carries out all that is pending in one
// transaction. Then it reads what has changed since the last version that it knows, and
// reports it. LISTEN wakes it, and so does a timer, because notifications get lost. Behind
// a pooler, LISTEN does not work, and the timer runs fast while there is something to wait
// for. The requests of a round are one message, of prepared statements where there is no
// pooler. The server carries it out up to its COMMIT, whether or not the process still lives.
// So nobody can stop, or be cut off, while it holds the lock.
//
// All tickets of a process belong to its session, a row with a counter that each renewal of
// the lease increments, on a second connection. Other processes see on their own clocks that it does
// not move for the time to live. They end the session, unless the counter has moved, and take
// its tickets out. Its process has given up before; see package lease. No clock of the server
// ends a lease.
//
// A commit whose answer is lost may have happened, or may happen later. Each ticket has a
// serial number in its session, whose row knows the last one. So the request is repeated,
// and makes no ticket twice.
//
// Each answer says which server gave it, its timeline, and its position in the
// write-ahead log. If a standby was promoted or a copy restored, commits may be missing.
// The first process to notice ends all sessions, and puts a row in their place that nobody renews. No
// session begins until it has ended. By then, all processes have noticed, or given up.
//
// Once a process has had a session, it begins none in another history, and makes no tables: if
// its search_path or address leads elsewhere, others may be inside where it was.
//
// # What was rejected
//
//   - Session locks (pg_advisory_lock): behind a pooler, they stay with a connection that
//     belongs to another client. And other processes cannot see who waits.
//   - Functions in the database: a rolling update would need two versions of them at once.
//   - A row lock for each queue: versions would not be in order across queues.
//
// # What remains imperfect
//
//   - An old primary that still accepts writes after a failover has queues of its own.
//     Before a standby is promoted, the primary must be stopped.
//   - All queues of a namespace share a row, so their commits come one after another.
//   - A server without fsync forgets commits, and nobody can notice.
type Store struct {
	*lease.Store
	namespace string
	patience  time.Duration // for the answer to a request
	server    *pgx.ConnConfig
	others    lease.Observer

	// Of the history that the process has had a session in; empty before the first. open uses them.
	identity, place string

	lostBefore atomic.Int64 // an answer has shown that history was lost in an epoch before this one
	known      atomic.Int64 // the greatest number that an answer has shown
}
