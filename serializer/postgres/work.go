package postgres

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// change is a statement for the next round, with the namespace as its first argument. It may
// be repeated, because the answer to a commit can be lost.
type change struct {
	statement string // its name; without one, the round only reads
	args      []any
	done      chan error
}

func newChange(statement string, args ...any) *change {
	return &change{statement: statement, args: args, done: make(chan error, 1)}
}

// work is what a round carries out.
type work struct {
	lease.Pending
	changes []*change
	reads   bool  // what has changed, too
	full    bool  // read everything
	ends    bool  // read when leases end, and count the tickets
	due     bool  // a lease may have ended
	trim    int64 // delete what was out by this version; 0 deletes nothing
}

func (w *work) writes() bool {
	return w.due || len(w.Leaving)+len(w.Inside) > 0 || slices.ContainsFunc(w.changes, func(c *change) bool { return c.statement != "" })
}

// message is what other processes get: which tickets are out, or nothing if they must read. New
// tickets do not concern anybody who is waiting.
func (w *work) message() (text string, notifies bool) {
	mustBeRead := func(c *change) bool { return c.statement != "" && c.statement != "insert" }
	if w.due || len(w.Inside) > 0 || len(w.Leaving) > 200 || slices.ContainsFunc(w.changes, mustBeRead) {
		return "", true
	}
	return strings.Join(w.Leaving, " "), len(w.Leaving) > 0
}

// takeWork takes what is pending.
func (s *session) takeWork() *work {
	lease.Yield()
	select {
	case <-s.Wanted: // the round does that, too
	default:
	}
	st, now := s.store, time.Now()
	st.Mu.Lock()
	defer st.Mu.Unlock()
	w := &work{
		Pending: s.TakeLocked(math.MaxInt), changes: s.changes,
		full: s.version < 0, due: !s.due.IsZero() && !now.Before(s.due),
	}
	s.changes = nil
	if w.writes() {
		s.changedAt = now
	}
	if w.writes() && now.Sub(s.trimmedAt) >= trimEvery {
		w.trim, s.old, s.trimmedAt = s.old, max(s.version, 0), now
	}
	// With notifications, a round that only takes tickets out need not read.
	w.reads = !s.listening || w.full || w.due || len(w.changes) > 0 || len(w.Leaving) == 0 || now.Sub(s.endsAt) >= listenPoll
	if w.reads && (w.due || now.Sub(s.endsAt) >= listenPoll) {
		w.ends, s.endsAt = true, now
	}
	return w
}

// putBack keeps what was not carried out for the next round. A request that the server has
// refused for good fails.
func (s *session) putBack(w *work, err error) {
	s.Again(w.Pending)
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	for _, c := range w.changes {
		if !transient(err) {
			c.done <- err
		}
	}
	if transient(err) {
		s.changes = append(w.changes, s.changes...)
	}
}

// work makes rounds until the session is over.
func (s *session) work() {
	defer func() { discard(s.working) }()
	for s.Ctx.Err() == nil {
		err := s.round()
		s.trouble.Store(&err)
		switch {
		case err == nil:
			s.pause()
		case !strings.HasPrefix(code(err), "40") && s.Ctx.Err() == nil:
			s.store.Complain(err) // otherwise, only another transaction was in the way
			lease.Sleep(s.Ctx, lease.RetryPause)
		}
	}
}

// How often a session reads what has changed while nothing wakes it, and deletes rows.
const (
	idlePoll   = time.Second            // no ticket here waits for a remote one
	listenPoll = 250 * time.Millisecond // in case that a notification gets lost
	fastPoll   = time.Millisecond       // without notifications, just after a change; then less often
	slowPoll   = 20 * time.Millisecond  // without notifications, long after a change
	trimEvery  = 10 * time.Second       // rows are deleted that were out by the last time
)

// pause waits until there is something to do, or might be. It takes all notifications off the
// connection, which keeps them.
func (s *session) pause() {
	ctx, cancel := context.WithTimeout(s.Ctx, s.nextPoll())
	defer cancel()
	go func() {
		select {
		case <-s.Wanted:
			s.Wake() // it may have been for a round after this pause
			cancel()
		case <-ctx.Done():
		}
	}()
	next := s.working.WaitForNotification
	for n, err := next(ctx); err == nil; n, err = next(ctx) { // whatever has ended it, the next round is due
		if n.PID != s.working.PgConn().PID() && !s.hear(n.Payload) {
			cancel()
		}
	}
}

// nextPoll is how long to wait for a wake-up.
func (s *session) nextPoll() (limit time.Duration) {
	now := time.Now()
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	switch {
	case s.Local == 0 || s.Remote == 0:
		limit = idlePoll
	case s.listening:
		limit = listenPoll
	default:
		limit = min(max(now.Sub(s.changedAt)/2, fastPoll), slowPoll)
	}
	return min(limit, max(s.due.Sub(now), fastPoll))
}
