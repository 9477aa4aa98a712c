package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Options of a [Store]. All but Free are required.
type Options struct {
	Name  string // of the kind of servers, for people, such as Redis
	Where string // which servers, for people
	Path  string // see [serializer.Store]
	TTL   time.Duration
	Log   *slog.Logger

	// New makes the protocol of a session. It asks nothing of the servers.
	New func(*Session) Protocol

	Free func() // frees connections when the store is closed
}

// ErrElsewhere is why a process begins no session in another history than its last one. There, it
// would let callers in beside those of the processes that are still in the old one.
var ErrElsewhere = errors.New("another history of the queues")

// Protocol is what the session of a store says to its servers. It also carries out what is
// pending in the session, in the next request or soon; see [Session.TakeLocked].
type Protocol interface {
	// Start requests a lease, calls [Session.Begin], and reports all tickets and pauses that
	// are there. If it succeeds, tickets are taken in the session.
	Start() error

	// Keep renews the lease until the session is over.
	Keep()

	// Revoke ends the lease, if it has not ended, and all its tickets with it.
	Revoke(ctx context.Context) error

	// Append makes tickets, by [Session.Send], and returns when they are reported. If somebody
	// deletes one before, it need not be.
	Append(ctx context.Context, tickets []*serializer.Ticket) error

	// Sync returns when all that has happened before the call is reported.
	Sync(ctx context.Context) error

	// Evict asks the owner of another process's ticket to evict it, and returns when that is
	// reported by [Session.AskedLocked], or the ticket is out. A ticket without an owner is
	// deleted.
	Evict(ctx context.Context, t *serializer.Ticket) error

	// Pause pauses a queue until a moment of this machine's clock, and returns when that is
	// reported. The zero time ends a pause.
	Pause(ctx context.Context, name string, until time.Time) error
}

// Store implements [serializer.Lease] by a [Protocol]. It keeps one session, and begins
// another one when that is lost.
type Store struct {
	Options
	Owner *serializer.Owner // this process
	Ctx   context.Context   // done when the store is closed

	stop     context.CancelFunc
	events   serializer.Events
	running  sync.WaitGroup
	failures throttle.Throttle[struct{}] // of log entries about requests
	last     uint64                      // Ref of the last session's tickets; run alone uses it

	// Mu guards the rest, the fields of sessions, and what protocols know. It is held from
	// when something is known until it is reported.
	Mu       sync.Mutex
	sessions map[uint64]*Session  // by Ref: the current one, and lost ones whose holders have not left
	pauses   map[string]time.Time // that were reported
	current  *Session             // tickets are taken in it; nil if there is none
	failure  error                // why there is none; nil while one is being begun
	changed  chan struct{}        // closed and replaced by ChangedLocked
}

// NewStore makes a store that nobody follows yet.
func NewStore(o Options) *Store {
	host, _ := os.Hostname() // for people
	st := &Store{
		Options: o, Owner: &serializer.Owner{Name: fmt.Sprintf("pid %d on %s", os.Getpid(), host), Alive: true},
		sessions: make(map[uint64]*Session), pauses: make(map[string]time.Time), changed: make(chan struct{}),
	}
	st.Ctx, st.stop = context.WithCancel(context.Background())
	return st
}

// Path implements [serializer.Store].
func (st *Store) Path() string { return st.Options.Path }

// Follow implements [serializer.Store].
func (st *Store) Follow(events serializer.Events) {
	if st.events != nil {
		panic("lease: a second engine on a store: open another store, or share the engine")
	}
	st.events = events
	st.running.Go(st.run)
}

// Stands implements [serializer.Lease].
func (st *Store) Stands(t *serializer.Ticket) bool {
	st.Mu.Lock()
	s := st.sessions[t.Ref]
	st.Mu.Unlock()
	return s != nil && s.Stands()
}

// Append implements [serializer.Store].
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return st.do(ctx, "taking a ticket from", func(s *Session) error {
		err := s.protocol.Append(ctx, tickets)
		if s.Abandon() > 0 && err == nil {
			err = fmt.Errorf("somebody has deleted it: %w", serializer.ErrEvicted)
		}
		return err
	})
}

// Sync implements [serializer.Store].
func (st *Store) Sync(ctx context.Context) error {
	return st.do(ctx, "reading queues from", func(s *Session) error { return s.protocol.Sync(ctx) })
}

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock when the request is sent.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	return st.do(ctx, "changing a pause in", func(s *Session) error { return s.protocol.Pause(ctx, name, until) })
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	return st.Pause(ctx, name, time.Time{})
}

// The Ref of a ticket of another process.
const (
	IsInside = 1 << iota // its owner says so
	IsAsked              // its owner was asked to evict it
)

// Evict implements [serializer.Store]. It asks the owner, which alone knows whether the ticket is
// inside, and waits until the owner has obeyed, or the ticket is out.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	known := false
	err := st.do(ctx, "asking the owner by", func(s *Session) (err error) {
		st.Mu.Lock()
		known = s.Tickets[t.Key] != nil
		st.Mu.Unlock()
		if known {
			err = s.protocol.Evict(ctx, t)
		}
		for err == nil && atomic.LoadUint64(&t.Ref)&IsAsked != 0 {
			Sleep(ctx, RetryPause/4)
			err = context.Cause(ctx)
		}
		return cmp.Or(err, context.Cause(s.Ctx))
	})
	if err == nil && !known {
		return serializer.ErrNoTicket
	}
	return err
}

// SetInside implements [serializer.Store]. That is for lists only. It must not wait for Mu: reports
// to the engine are made with it, and wait for the engine's lock.
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if !paused {
		return
	}
	go func() {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		if s := st.sessions[t.Ref]; s != nil {
			s.markLocked(t)
		}
	}()
}

// Inside implements [serializer.Store].
func (st *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref)&IsInside != 0 }

// Remove implements [serializer.Store].
func (st *Store) Remove(t *serializer.Ticket) {
	st.Mu.Lock()
	defer st.Mu.Unlock()
	s := st.sessions[t.Ref]
	s.Local--
	switch {
	case s.Over:
		s.forgetIfLeftLocked()
	case s.Tickets[t.Key] == t: // otherwise, it was taken out by another process
		delete(s.Tickets, t.Key)
		delete(s.Inside, t.Key)
		s.LeaveLocked(t.Key)
	}
}

// Close implements [serializer.Store]. It ends the session, and all its tickets with it.
func (st *Store) Close() error {
	if st.Free != nil {
		defer st.Free()
	}
	st.stop()
	st.running.Wait()
	st.Mu.Lock()
	s := st.current
	if s != nil {
		s.Over = true // so that nothing is reported any more
	}
	st.Mu.Unlock()
	if s == nil || !s.Stop() {
		return nil
	}
	if err := s.revoke(context.Background(), 4); err != nil { // no more: the server may be gone
		return fmt.Errorf("ending the session in %s, which will expire: %w", st.Name, err)
	}
	return nil
}

// do calls a function with the current session. While a session is being begun, it waits for
// the result. An error says what was being done to the servers.
func (st *Store) do(ctx context.Context, what string, f func(*Session) error) error {
	s, err := st.await(ctx)
	if err == nil {
		err = f(s)
	} else {
		what = "using"
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &serializer.StorageError{Op: what, Path: st.Name + " at " + st.Where, Err: err}
}

// await returns the current session, or why there is none. While one is being begun, it waits.
func (st *Store) await(ctx context.Context) (s *Session, failure error) {
	err := st.AwaitChange(ctx, func() bool {
		s, failure = st.current, st.failure
		return s != nil || failure != nil
	})
	return s, cmp.Or(failure, err)
}

// AwaitChange waits until a condition holds, which can change when ChangedLocked is called.
func (st *Store) AwaitChange(ctx context.Context, holdsLocked func() bool) error {
	for {
		st.Mu.Lock()
		holds, changed := holdsLocked(), st.changed
		st.Mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// setCurrentLocked notes the current session, or why there is none.
func (st *Store) setCurrentLocked(s *Session, failure error) {
	st.current, st.failure = s, failure
	st.ChangedLocked()
}

// ChangedLocked wakes those that are in AwaitChange.
func (st *Store) ChangedLocked() {
	close(st.changed)
	st.changed = make(chan struct{})
}

// Complain logs an error that concerns no particular caller, at most once a second.
func (st *Store) Complain(err error) {
	if st.Ctx.Err() == nil && !errors.Is(err, serializer.ErrLost) {
		st.failures.Do(struct{}{}, func(int) {
			st.Log.Error("a request to "+st.Name+" failed; trying again", "path", st.Path(), "error", err)
		})
	}
}

// run keeps a session until the store is closed.
func (st *Store) run() {
	for st.Ctx.Err() == nil {
		s, err := st.begin()
		if err == nil {
			s.protocol.Keep()
			continue
		}
		st.Mu.Lock()
		isNew := st.failure == nil || st.failure.Error() != err.Error()
		st.setCurrentLocked(nil, err)
		st.Mu.Unlock()
		if isNew && st.Ctx.Err() == nil {
			st.Log.Warn(st.Name+" cannot be used; requests are refused until it can", "servers", st.Where, "path", st.Path(), "error", err)
		}
		Sleep(st.Ctx, 4*RetryPause)
	}
}

// begin begins a session, and makes it the one that tickets are taken in.
func (st *Store) begin() (*Session, error) {
	s := newSession(st)
	err := s.protocol.Start()
	if err == nil {
		err = st.use(s)
	}
	if err == nil {
		st.Log.Info("began a session in "+st.Name, "servers", st.Where, "path", st.Path(), "session", s.name, "ttl", st.TTL)
		return s, nil
	}
	if s.Deadline != nil {
		s.End(err)
	}
	s.end(err)
	return nil, err
}

func (st *Store) use(s *Session) error {
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if s.Over {
		return context.Cause(s.Ctx)
	}
	st.sessions[s.ref] = s
	st.setCurrentLocked(s, nil)
	return nil
}

// lose ends a session when it can no longer be relied on.
func (st *Store) lose(s *Session, cause error) {
	err := fmt.Errorf("%w: session %s: %w", serializer.ErrLost, s.name, cause)
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if s.Over {
		return // the store is closed
	}
	s.Over = true
	s.end(err)
	if st.current == s || len(s.Tickets) > 0 {
		st.events.Lost(err)
	}
	if st.current == s {
		st.setCurrentLocked(nil, nil)
	}
	for key := range s.Tickets {
		s.StateLocked(key, 0)
	}
	s.forgetIfLeftLocked()
}

// Interface guard
var _ serializer.Lease = (*Store)(nil)
