package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// checkHistory ends the session if an answer comes from another history, or if the session
// has ended.
func (s *session) checkHistory(a *answer) (err error) {
	switch {
	case a.timeline != s.timeline || a.position < s.position || a.last < s.version:
		err = fmt.Errorf("a standby was promoted, or a copy was restored: the server's timeline is %s, at %x; it was %s, at %x",
			a.timeline, a.position, s.timeline, s.position)
		s.store.lostBefore.Store(s.epoch + 1)
	case !a.stands:
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
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	switch {
	case s.Over:
		return context.Cause(s.Ctx)
	case !w.reads:
		return nil
	case !w.full && a.trimmed > s.version: // rows were deleted that the process has not seen
		s.version = -1
		for _, c := range w.changes { // carried out, but not reported
			c.statement = ""
		}
		s.changes = append(w.changes, s.changes...)
		s.Wake()
		return nil
	}
	s.reportRowsLocked(a, w.full)
	s.version = a.last
	s.store.known.Store(max(a.last, s.store.known.Load()))
	if w.ends {
		next := s.store.others.See(a.others)
		if a.orphans {
			next = 0
		}
		s.due = time.Now().Add(next)
		if a.count != len(s.Tickets)+len(s.Leaving) {
			s.version = -1 // somebody has deleted rows
		}
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
		text, _ := hex.DecodeString(p.Name) // the server has encoded it
		pauses[string(text)] = true
		s.PausedLocked(string(text), time.UnixMicro(p.Until).UTC())
	}
	for i := range a.tickets {
		keys[a.tickets[i].key()] = true
		s.reportLocked(&a.tickets[i])
	}
	if full {
		s.OnlyLocked(keys, pauses)
	}
	if len(a.tickets) > 0 {
		s.changedAt = time.Now() // so that a session without notifications reads often
	}
}

func (s *session) reportLocked(r *row) {
	key, own := r.key(), r.Session == s.id
	known := s.Tickets[key] != nil
	switch {
	case r.Gone:
		s.OutLocked(key)
	case s.Leaving[key]:
	case own && !known:
		s.JoinedLocked(strconv.FormatInt(r.Serial, 10), key, r.Number)
	case !known:
		t := lease.RemoteTicket(key, r.Number, r.Record)
		t.Ref = r.State
		s.AppearedLocked(t)
	default:
		s.StateLocked(key, r.State)
	}
}

// hear applies a notification. It reports whether that was all: the message names tickets
// that are out. Anything else must be read.
func (s *session) hear(message string) bool {
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	if message == "" || s.Over {
		return false
	}
	for key := range strings.SplitSeq(message, " ") {
		if t := s.Tickets[key]; t != nil && !t.Local() {
			s.OutLocked(key)
		}
	}
	return true
}
