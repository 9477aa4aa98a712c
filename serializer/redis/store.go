// Package redis keeps the tickets of [serializer] in Redis or Valkey, so that callers on many
// machines enter one after another, in order of arrival.
//
//	store, err := redis.Open(redis.Options{Addresses: []string{"10.0.0.1:6379"}})
//	e := serializer.New(store, serializer.Options{})
//	turn, err := e.Enter(ctx, serializer.Arrival{Queue: "reports"})
//	defer turn.Leave()
//
// It does not depend on Caddy. The Go module caddy-orderly/modules/redis makes it an
// engine of the Caddy plugin.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/serializer"
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
// Whoever asks first after a session's deadline takes its tickets out, in the script. The
// clock of deadlines is counted by the script, from the server's. It jumps neither with a
// clock that is set nor with a server that stood still. The process has an earlier deadline;
// see package lease.
//
// # Why it is safe, and how far
//
// A process sends version and tag of the last entry that it has seen. No two entries have the
// same tag. If the log lacks it, the server has another history: it was restarted without
// its last changes, or a replica without them has taken over. The process then gives its
// session up. By its run ID, the script notices another server. Nobody gets a ticket there
// for one time to live: by then, each process that knows more has noticed. So while all
// processes run and use one server, no two are inside. Numbers go on from the server's clock
// in microseconds, or from the greatest that a process knows.
//
// If two servers take themselves for the master, the processes of each let callers in.
//
// # What was rejected
//
//   - Keys that expire: Redis's clock can be set, and a replica's may differ.
//   - Blocking pops, and Redlock: they have no order.
type Store struct {
	keys    keys
	where   string // the addresses, for people
	owner   *serializer.Owner
	ttl     time.Duration
	servers *servers
	log     *slog.Logger
	events  serializer.Events
	ctx     context.Context // done when the store is closed
	stop    context.CancelFunc
	running sync.WaitGroup
	logged  throttle.Throttle[struct{}] // of log entries about requests
	current lease.Current[session]

	mu       sync.Mutex
	sessions map[uint64]*session // by serial: this one, and lost ones whose holders have not left
	serial   uint64              // of the last session
	known    uint64              // the greatest number that this process has seen
	pauses   map[string]bool     // that were reported
}

// Path returns redis: and the namespace.
func (st *Store) Path() string { return "redis:" + st.keys.namespace }

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

// Sync implements [serializer.Store].
func (st *Store) Sync(ctx context.Context) error {
	_, err := st.do(ctx, "reading the queues in")
	return err
}

// do has the script carry out operations. All changes before are then reported.
func (st *Store) do(ctx context.Context, what string, operations ...string) (own []string, err error) {
	s, err := st.await(ctx)
	if err != nil {
		return nil, err
	}
	own, err = s.persist(ctx, newRequest("keep", operations...))
	return own, st.storageError(what, err)
}

// Close implements [serializer.Store]. It ends the session, and all its tickets with it.
func (st *Store) Close() error {
	st.stop()
	st.running.Wait()
	defer st.servers.close()
	s := st.current.Get()
	if s == nil || !s.lease.Stop() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	if err := s.revoke(ctx); err != nil {
		return fmt.Errorf("ending the session, which will expire: %w", err)
	}
	return nil
}

// await returns the session. While one is being begun, it waits for the result.
func (st *Store) await(ctx context.Context) (*session, error) {
	s, err := st.current.Await(ctx)
	if err != nil && ctx.Err() == nil {
		err = st.storageError("using", err)
	}
	return s, err
}

// complain logs an error that concerns no particular caller, at most once a second.
func (st *Store) complain(err error) {
	if _, ok := st.logged.Allow(struct{}{}); ok && st.ctx.Err() == nil && !errors.Is(err, serializer.ErrLost) {
		st.log.Error("a request to Redis failed; trying again", "addresses", st.where, "namespace", st.keys.namespace, "error", err)
	}
}

func (st *Store) storageError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &serializer.StorageError{Op: op, Path: "Redis at " + strings.ReplaceAll(st.where, ",", ", "), Err: err}
}

// Interface guard
var _ serializer.Lease = (*Store)(nil)
