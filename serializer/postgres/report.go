package postgres

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
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
		s.store.Mu.Lock()
		s.store.lostEpoch = max(s.store.lostEpoch, s.epoch)
		s.store.Mu.Unlock()
	case a.serial == nil || !a.stands:
		err = lease.ErrEnded
	default:
		s.position = a.position
		return nil
	}
	s.End(err)
	return err
}

// report reports what a round has read, and finishes its work.
func (s *session) report(w *work, a *answer) error {
	st := s.store
	st.Mu.Lock()
	defer st.Mu.Unlock()
	switch {
	case s.OverLocked():
		return context.Cause(s.Ctx)
	case !w.reads:
		return nil
	case !w.full && a.trimmed > s.version: // rows were deleted that the process has not seen
		s.version = -1
		for _, c := range w.changes { // carried out, but not reported
			c.statement, c.tickets = "", 0
		}
		s.changes = append(w.changes, s.changes...)
		s.Wake()
		return nil
	}
	s.reportRowsLocked(a, w.full)
	s.version, s.trimmed = a.last, a.trimmed
	if w.ends {
		s.due = time.Time{}
	}
	if a.due != nil {
		s.due = time.Now().Add(time.Duration(*a.due) * time.Microsecond)
	}
	if a.count != nil && *a.count != len(s.Tickets)+len(s.Leaving) {
		s.version = -1 // somebody has deleted rows
	}
	for _, c := range w.changes {
		c.done <- nil
	}
	return nil
}

// reportRowsLocked reports pauses, and tickets in the order of their numbers. After a full
// read, those that were not read are out.
func (s *session) reportRowsLocked(a *answer, full bool) {
	keys, pauses := make(map[string]bool), make(map[string]bool)
	for _, p := range a.pauses {
		name, until := string(p.Name), time.Time{}
		if p.Until != nil {
			until = time.UnixMicro(*p.Until).UTC()
		}
		pauses[name] = true
		s.PausedLocked(name, until)
	}
	for i := range a.tickets {
		r := &a.tickets[i]
		keys[r.key] = true
		s.reportLocked(r)
	}
	if full {
		s.OnlyLocked(keys, pauses)
	}
	if len(a.tickets) > 0 {
		s.changedAt = time.Now() // so that a session without notifications reads often
	}
}

func (s *session) reportLocked(r *row) {
	known, own := s.Tickets[r.key] != nil, r.session == s.id
	switch {
	case r.gone:
		s.OutLocked(r.key)
	case s.Leaving[r.key]:
	case own && !known:
		s.JoinedLocked(ticketID(r.serial), r.key, r.number)
	case own && r.evict:
		s.EvictLocked(r.key)
		s.changes = append(s.changes, newChange("set evict", r.number, false))
		s.Wake()
	case own:
	case !known:
		s.AppearedLocked(r.ticket())
	default:
		s.SetStateLocked(r.key, r.state())
	}
}

// ticket makes the ticket of another process.
func (r *row) ticket() *serializer.Ticket {
	t := &serializer.Ticket{
		Key: r.key, Number: r.number, Queue: string(r.queue), Arrived: time.UnixMicro(r.arrived).UTC(),
		Owner: &serializer.Owner{Name: r.owner, Alive: true}, Ref: r.state(),
	}
	t.Rule = r.rule
	t.Client, _ = netip.ParseAddrPort(r.client)
	return t
}

func (r *row) state() (state uint64) {
	if r.inside {
		state |= lease.IsInside
	}
	if r.evict {
		state |= lease.IsAsked
	}
	return state
}

// hear applies a notification. It reports whether that was all: the message names tickets
// that are out. Anything else must be read.
func (s *session) hear(message string) bool {
	st := s.store
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if message == "" || s.OverLocked() {
		return false
	}
	s.changedAt = time.Now()
	for key := range strings.SplitSeq(message, " ") {
		if t := s.Tickets[key]; t != nil && !t.Local() {
			s.OutLocked(key)
		}
	}
	return true
}
