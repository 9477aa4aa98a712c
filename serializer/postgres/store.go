// Package postgres keeps the tickets of [serializer] in a PostgreSQL database, so that
// callers on many machines enter one after another, in order of arrival.
//
//	store, err := postgres.Open(postgres.Options{URL: "postgres://orderly:secret@10.0.0.1/shop"})
//	e := serializer.New(store, serializer.Options{})
//	turn, err := e.Enter(ctx, serializer.Arrival{Queue: "reports"})
//	defer turn.Leave()
//
// It does not depend on Caddy. The Go module caddy-orderly/modules/postgres makes it an
// engine of the Caddy plugin.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/serializer"
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
// for. The requests of a round are one message. The server carries it out whether
// or not the process still lives, so nobody can stop while it holds the lock.
//
// All tickets of a process belong to its session, a row with the end of its lease by the
// server's clock. Whoever finds a session ended takes its tickets out. Its process has
// given up before; see package lease. A second connection renews the lease, so that a
// round that waits for a lock does not cost it.
//
// A commit whose answer is lost may have happened, or may happen later. Each ticket has a
// serial number in its session, whose row knows the last one. So the request is repeated,
// and makes no ticket twice.
//
// Each answer says which server gave it, its timeline, and its position in the
// write-ahead log. If a standby was promoted or a copy restored, commits may be missing.
// Whoever notices ends all sessions, and none begins for the longest lease. By then, all
// processes have noticed, or their leases have ended.
//
// # Why it is safe, and how far
//
// While all processes run and their clocks tick at about the same rate, no two are inside. A
// process that is stopped between two instructions cannot notice that its lease has ended.
// The upstream can: it rejects tokens smaller than the greatest it has seen.
//
// # What was rejected
//
//   - Session locks (pg_advisory_lock): behind a pooler, they stay with a connection that
//     belongs to somebody else. And others cannot see who waits.
//   - Functions in the database: a rolling update would need two versions of them at once.
//   - A row lock for each queue: versions would not be in order across queues.
//
// # What remains imperfect
//
//   - An old primary that still accepts writes after a failover has queues of its own.
//     Whoever promotes a standby must first stop it.
//   - All queues of a namespace share a row, so their commits come one after another.
//   - A server without fsync forgets commits, and nobody can notice.
type Store struct {
	namespace string
	owner     *serializer.Owner // this process
	ttl       time.Duration
	patience  time.Duration // for the answer to a request
	server    *pgx.ConnConfig
	log       *slog.Logger
	events    serializer.Events
	ctx       context.Context // done when the store is closed
	stop      context.CancelFunc
	running   sync.WaitGroup
	failures  throttle.Throttle[struct{}] // of log entries about rounds
	current   lease.Current[session]
	channel   string // of the namespace, as run knows it

	mu        sync.Mutex
	sessions  map[uint64]*session // by ID: the current one, and lost ones whose holders have not left
	pauses    map[string]time.Time
	lostEpoch int64 // whose history was lost, as an answer has shown; -1 if none was
}

// Path returns postgres: and the namespace.
func (st *Store) Path() string { return "postgres:" + st.namespace }

// Check implements [serializer.Store]. Every name will do.
func (st *Store) Check(string) error { return nil }

// Follow implements [serializer.Store].
func (st *Store) Follow(events serializer.Events) {
	st.events = events
	st.running.Go(st.run)
}

// Stands implements [serializer.Lease].
func (st *Store) Stands(t *serializer.Ticket) bool {
	s := st.sessionOf(t)
	return s != nil && s.lease.Stands()
}

// sessionOf returns the session that a ticket of this process belongs to.
func (st *Store) sessionOf(t *serializer.Ticket) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sessions[t.Ref]
}

// Close implements [serializer.Store]. It ends the session, and takes out its tickets that
// are not out yet.
func (st *Store) Close() error {
	st.stop()
	st.running.Wait()
	s := st.current.Get()
	if s != nil && s.lease.Stop() {
		if err := s.revoke(context.Background()); err != nil {
			return fmt.Errorf("ending session %d, whose lease will expire: %w", s.id, err)
		}
	}
	return nil
}

// await returns the session. While one is being requested, it waits for the result.
func (st *Store) await(ctx context.Context) (*session, error) {
	s, err := st.current.Await(ctx)
	if err != nil && ctx.Err() == nil {
		err = st.storageError("using PostgreSQL", err)
	}
	return s, err
}

// complain logs an error that concerns no particular caller, at most once a second.
func (st *Store) complain(err error) {
	if _, ok := st.failures.Allow(struct{}{}); ok && st.ctx.Err() == nil && !errors.Is(err, serializer.ErrLost) {
		st.log.Error("a request to PostgreSQL failed; trying again", "namespace", st.namespace, "error", err)
	}
}

func (st *Store) storageError(op string, err error) error {
	return &serializer.StorageError{Op: op, Path: st.Path(), Err: err}
}

// Interface guard
var _ serializer.Lease = (*Store)(nil)
