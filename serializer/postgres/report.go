package postgres

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// checkHistory ends the session if an answer comes from another history, or if the session
// has ended.
func (s *session) checkHistory(a *answer) (err error) {
	switch {
	case a.timeline != s.timeline || a.position < s.position || a.last < s.version:
		err = fmt.Errorf("%w: the server's timeline is %s, at %x; it was %s, at %x", errOtherHistory, a.timeline, a.position, s.timeline, s.position)
	case a.serial == nil || !a.stands:
		err = lease.ErrEnded
	default:
		s.position = a.position
		return nil
	}
	s.lease.End(err)
	return err
}

// report reports what a round has read, and finishes its work.
func (s *session) report(w *work, a *answer) error {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over {
		return context.Cause(s.ctx)
	}
	for _, number := range w.leaving {
		delete(s.leaving, number)
	}
	if !w.reads {
		return nil
	}
	if !w.full && a.trimmed > s.version { // rows were deleted that the process has not seen
		s.version = -1
		for _, c := range w.changes { // carried out, but not reported
			c.statement = ""
		}
		s.changes = append(w.changes, s.changes...)
		s.wakeUp()
		return nil
	}
	s.reported = true
	s.reportPausesLocked(a, w.full)
	s.reportTicketsLocked(a, w.full)
	s.version, s.trimmed = a.last, a.trimmed
	if w.ends {
		s.due = time.Time{}
	}
	if a.due != nil {
		s.due = time.Now().Add(time.Duration(*a.due) * time.Microsecond)
	}
	if a.count != nil && *a.count != len(s.tickets)+len(s.leaving) {
		s.version = -1 // somebody has deleted rows
	}
	if b := w.sent; b != nil && s.sent == b {
		s.sent = nil
		b.done <- fmt.Errorf("somebody has deleted its row: %w", serializer.ErrEvicted)
	}
	for _, c := range w.changes {
		c.done <- nil
	}
	return nil
}

func (s *session) reportPausesLocked(a *answer, full bool) {
	st, read := s.store, make(map[string]bool)
	for _, p := range a.pauses {
		name, until := string(p.Name), time.Time{}
		if p.Until != nil {
			until = time.UnixMicro(*p.Until).UTC()
		}
		read[name] = true
		st.pausedLocked(name, until)
	}
	for name := range st.pauses {
		if full && !read[name] {
			st.pausedLocked(name, time.Time{})
		}
	}
}

// pausedLocked reports a pause or its end, unless it is known.
func (st *Store) pausedLocked(name string, until time.Time) {
	if st.pauses[name].Equal(until) {
		return
	}
	if st.pauses[name] = until; until.IsZero() {
		delete(st.pauses, name)
	}
	st.events.Paused(name, until)
}

// reportTicketsLocked reports tickets in the order of their numbers. With a full read, those
// that were not read are out: first the own ones, so that none of them enters.
func (s *session) reportTicketsLocked(a *answer, full bool) {
	read := make(map[uint64]bool)
	for i := range a.tickets {
		r := &a.tickets[i]
		read[r.number] = true
		s.reportLocked(r)
	}
	for _, local := range []bool{true, false} {
		for number, t := range s.tickets {
			if full && t.Local() == local && !read[number] {
				s.outLocked(t)
			}
		}
	}
}

func (s *session) reportLocked(r *row) {
	t, own := s.tickets[r.number], r.session == s.id
	switch {
	case r.gone && t != nil:
		s.outLocked(t)
	case r.gone || s.leaving[r.number]:
	case own && t == nil:
		s.joinedLocked(r)
	case own && r.evict:
		s.store.events.Evict(t.Queue, t.Number)
		s.changes = append(s.changes, newChange("set evict", t.Number, false))
		s.wakeUp()
	case own:
	case t == nil:
		t = &serializer.Ticket{
			Queue: string(r.queue), Number: r.number, Arrived: time.UnixMicro(r.arrived).UTC(), Ref: r.state(),
			Owner: &serializer.Owner{Name: r.owner, Alive: true},
		}
		t.Rule = r.rule
		t.Client, _ = netip.ParseAddrPort(r.client)
		s.tickets[r.number] = t
		s.remote++
		s.changedAt = time.Now() // so that a session without notifications reads often
		s.store.events.Appeared(t)
	default:
		atomic.StoreUint64(&t.Ref, r.state())
	}
}

// joinedLocked reports a ticket of this process. One that nobody wants is taken out: its
// caller has gone, or the answer to its request was lost and Append has given up.
func (s *session) joinedLocked(r *row) {
	b := s.sent
	if b == nil || r.serial < b.first || r.serial >= b.first+int64(len(b.tickets)) {
		s.leaving[r.number] = true
		s.wakeUp()
		return
	}
	t := b.tickets[r.serial-b.first]
	t.Number, t.Arrived = r.number, time.UnixMicro(r.arrived).UTC()
	if b.open--; b.open == 0 {
		s.sent = nil
		defer func() { b.done <- nil }()
	}
	if !s.store.events.Joined(t) {
		s.leaving[r.number] = true
		s.wakeUp()
		return
	}
	s.tickets[r.number] = t
	s.local++
}

// outLocked reports that a ticket is out, which the process has not removed itself.
func (s *session) outLocked(t *serializer.Ticket) {
	delete(s.tickets, t.Number)
	s.changedAt = time.Now()
	if t.Local() {
		s.store.events.Removed(t)
		return
	}
	s.remote--
	s.store.events.Vanished(t)
}

// hear applies a notification. It reports whether that was all: the message names tickets
// that are out. Anything else must be read.
func (s *session) hear(message string) bool {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	for text := range strings.SplitSeq(message, " ") {
		number, err := strconv.ParseUint(text, 10, 64)
		if err != nil || s.over {
			return false
		}
		if t := s.tickets[number]; t != nil && !t.Local() {
			s.outLocked(t)
		}
	}
	return true
}

// The Ref of a ticket of another process.
const (
	isInside = 1 << iota // its owner says so
	isAsked              // somebody has asked its owner to evict it
)

func (r *row) state() (state uint64) {
	if r.inside {
		state |= isInside
	}
	if r.evict {
		state |= isAsked
	}
	return state
}

// Inside implements [serializer.Store].
func (st *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref)&isInside != 0 }

// isAsked reports whether the owner of a ticket has not obeyed yet.
func (st *Store) isAsked(t *serializer.Ticket) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.current.Get()
	return s != nil && s.tickets[t.Number] == t && atomic.LoadUint64(&t.Ref)&isAsked != 0
}
