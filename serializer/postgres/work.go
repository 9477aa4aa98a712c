package postgres

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// batch is the tickets of one Append. Their serial numbers follow each other.
type batch struct {
	tickets []*serializer.Ticket
	first   int64 // serial number
	open    int   // tickets that are not reported yet
	done    chan error
}

// insert adds the tickets to a transaction, unless it was committed before.
func (b *batch) insert(tx *pgx.Batch, s *session) {
	n := len(b.tickets)
	queues, clients := make([][]byte, n), make([]string, n)
	shared, limits := make([]bool, n), make([]int64, n)
	for i, t := range b.tickets {
		queues[i], shared[i], limits[i] = []byte(t.Queue), t.Rule.Shared, int64(t.Rule.Limit)
		if t.Client.IsValid() {
			clients[i] = t.Client.String()
		}
	}
	tx.Queue(statements["insert"], s.namespace, s.id, b.first, n, queues, clients, shared, limits)
}

// change is a statement for the next round, with the namespace as its first argument.
type change struct {
	statement string // its name; without one, the round only reads
	args      []any
	rows      int64 // that it has affected
	done      chan error
}

func newChange(statement string, args ...any) *change {
	return &change{statement: statement, args: args, done: make(chan error, 1)}
}

// work is what a round carries out.
type work struct {
	sent        *batch
	leaving     []uint64
	changes     []*change
	reads       bool  // what has changed, too
	full        bool  // read everything
	ends, count bool  // read when leases and pauses end, and count the tickets
	due         bool  // a lease or a pause may have ended
	trim        int64 // delete what was out by this version; 0 deletes nothing
}

func (w *work) writes() bool { return w.sent != nil || len(w.leaving) > 0 || w.mustBeRead() }

// mustBeRead reports whether there are changes of which others must read.
func (w *work) mustBeRead() bool {
	return w.due || slices.ContainsFunc(w.changes, func(c *change) bool { return c.statement != "" })
}

// message is what others are told: which tickets are out, or nothing if they must read. New
// tickets do not concern anybody who is waiting.
func (w *work) message() (text string, tells bool) {
	if w.mustBeRead() || len(w.leaving) > 200 {
		return "", true
	}
	return strings.Trim(fmt.Sprint(w.leaving), "[]"), len(w.leaving) > 0
}

// takeWork takes what is pending.
func (s *session) takeWork() *work {
	st, now := s.store, time.Now()
	st.mu.Lock()
	defer st.mu.Unlock()
	w := &work{sent: s.sent, changes: s.changes, full: s.version < 0, due: !s.due.IsZero() && !now.Before(s.due)}
	s.changes = nil
	for number := range s.leaving {
		w.leaving = append(w.leaving, number)
	}
	if w.writes() && s.version-s.trimmed > trimAfter+trimEvery {
		w.trim = s.version - trimAfter
	}
	if w.writes() {
		s.changedAt = now
	}
	// With notifications, a round that only takes tickets out need not read.
	w.reads = !s.listening || w.sent != nil || w.full || w.due || len(w.changes) > 0 || len(w.leaving) == 0 || now.Sub(s.endsAt) >= listenPoll
	if w.reads && (w.due || now.Sub(s.endsAt) >= listenPoll) {
		w.ends, s.endsAt = true, now
	}
	if w.ends && now.Sub(s.counted) >= st.ttl/4 {
		w.count, s.counted = true, now
	}
	return w
}

// putBack keeps what was not carried out for the next round. A request that the server has
// refused for good fails.
func (s *session) putBack(w *work, err error) {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if transient(err) {
		s.changes = append(w.changes, s.changes...)
		return
	}
	for _, c := range w.changes {
		c.done <- err
	}
	if b := w.sent; b != nil && s.sent == b {
		s.sent = nil
		b.done <- err
	}
}

// wakeUp has a round begin soon.
func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// work makes rounds until the session is over.
func (s *session) work() {
	defer func() { discard(s.working) }()
	for s.ctx.Err() == nil {
		s.pause()
		yield()
		err := s.round()
		if err == nil {
			s.trouble.Store(nil)
			continue
		}
		s.trouble.Store(&err)
		if strings.HasPrefix(code(err), "40") || s.ctx.Err() != nil { // another transaction was in the way
			continue
		}
		s.store.complain(err)
		lease.Sleep(s.ctx, lease.RetryPause)
	}
}

// yield lets a caller that has just left queue again: then one transaction takes the old
// ticket out and the new one in.
func yield() {
	for n, begun := 0, time.Now(); n < 8 || time.Since(begun) < 30*time.Microsecond; n++ {
		runtime.Gosched()
	}
}

// How often a session reads what has changed while nothing wakes it.
const (
	idlePoll   = time.Second            // nobody here waits for others
	listenPoll = 250 * time.Millisecond // in case that a notification gets lost
	fastPoll   = time.Millisecond       // without notifications, just after a change; then less often
	slowPoll   = 20 * time.Millisecond  // without notifications, long after a change
)

// pause waits until there is something to do, or might be.
func (s *session) pause() {
	limit, listening := s.nextPoll()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	if !listening || s.working.IsClosed() {
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
		return
	}
	go func() {
		select {
		case <-s.wake:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		n, err := s.working.WaitForNotification(ctx)
		if err != nil || n.PID != s.working.PgConn().PID() && !s.hear(n.Payload) {
			return // whatever has ended it, the next round is due
		}
	}
}

// nextPoll is how long to wait for a wake-up, and whether notifications are one. Without
// tickets here, they can wait.
func (s *session) nextPoll() (limit time.Duration, listening bool) {
	st, now := s.store, time.Now()
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case s.trouble.Load() != nil: // work has waited already
		return 0, false
	case s.local == 0 || s.remote == 0:
		limit = idlePoll
	case s.listening:
		limit = listenPoll
	default:
		limit = min(max(now.Sub(s.changedAt)/2, fastPoll), slowPoll)
	}
	if !s.due.IsZero() {
		limit = min(limit, max(s.due.Sub(now), fastPoll))
	}
	return limit, s.listening && s.local > 0
}

// Append implements [serializer.Store].
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s, err := st.await(ctx)
	if err != nil {
		return err
	}
	b := &batch{tickets: tickets, open: len(tickets), done: make(chan error, 1)}
	st.mu.Lock()
	b.first = s.serial + 1
	s.serial += int64(len(tickets))
	s.sent = b
	for _, t := range tickets {
		t.Ref, t.Owner = s.id, st.owner
	}
	st.mu.Unlock()
	s.wakeUp()
	err = s.await(ctx, b.done)
	st.mu.Lock()
	if s.sent == b {
		s.sent = nil // if they are inserted after all, report takes them out
	}
	st.mu.Unlock()
	if err != nil {
		return st.storageError("taking a ticket from", err)
	}
	return nil
}

// await waits for the result of something that a round carries out.
func (s *session) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// do has the next round carry out a change, and returns how many rows it has affected.
func (st *Store) do(ctx context.Context, statement string, args ...any) (rows int64, err error) {
	s, err := st.await(ctx)
	if err != nil {
		return 0, err
	}
	c := newChange(statement, args...)
	st.mu.Lock()
	s.changes = append(s.changes, c)
	st.mu.Unlock()
	s.wakeUp()
	if err := s.await(ctx, c.done); err != nil {
		return 0, st.storageError("changing queues in", err)
	}
	return c.rows, nil
}

// Sync implements [serializer.Store].
func (st *Store) Sync(ctx context.Context) error {
	_, err := st.do(ctx, "")
	return err
}

// Remove implements [serializer.Store].
func (st *Store) Remove(t *serializer.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[t.Ref]
	s.local--
	if s.over {
		s.forgetIfLeftLocked()
		return
	}
	if s.tickets[t.Number] == t { // otherwise, somebody has taken it out
		delete(s.tickets, t.Number)
		s.leaving[t.Number] = true
		s.wakeUp()
	}
}

// SetInside implements [serializer.Store].
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go func() { _, _ = st.do(st.ctx, "set inside", t.Number, true) }() // it is for lists only
	}
}

// Evict implements [serializer.Store]. The ticket's row asks its owner, which alone knows
// whether it is inside. The owner takes the request back when it has obeyed.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	rows, err := st.do(ctx, "set evict", t.Number, true)
	for err == nil && rows > 0 {
		if !st.isAsked(t) {
			return nil
		}
		lease.Sleep(ctx, lease.RetryPause/4)
		err = st.Sync(ctx)
	}
	if err == nil {
		return serializer.ErrNoTicket
	}
	return err
}

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock. The server measures that on its own clock, and the first process that
// notices ends it for all.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	var length *int64 // in microseconds; nil is without end
	if until.Before(serializer.Forever) {
		length = new(time.Until(until).Microseconds() + 1)
	}
	_, err := st.do(ctx, "pause", []byte(name), until.UTC().Format(time.RFC3339Nano), length)
	if err != nil {
		return fmt.Errorf("pausing queue %q: %w", name, err)
	}
	return nil
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	_, err := st.do(ctx, "resume", []byte(name))
	if err != nil {
		return fmt.Errorf("resuming queue %q: %w", name, err)
	}
	return nil
}
