package redis

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// report reports an entry of the log, unless it was. If one before it is missing, it asks
// for a poll, and returns true.
func (s *session) report(e entry) (behind bool) {
	if slices.Contains(e.changes, "x "+s.id) {
		s.End(lease.ErrEnded) // before its tickets vanish
	}
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	switch {
	case s.Over || e.version <= s.version:
	case s.version > 0 && (e.version > s.version+1 || e.before != s.tag):
		s.behind = true
		s.Wake()
		return true
	default:
		s.reportLocked(e)
	}
	return false
}

// reportLocked reports changes: each is a letter and arguments. Some are notes.
func (s *session) reportLocked(e entry) {
	appended := 0 // of this session
	for _, change := range e.changes {
		letter, argument, _ := strings.Cut(change, " ")
		first, rest, _ := strings.Cut(argument, " ")
		switch letter {
		case "p":
			name, _ := url.PathUnescape(first)
			until := time.Time{} // it is over
			if micros, _ := strconv.ParseInt(rest, 10, 64); micros > 0 {
				until = time.UnixMicro(micros).UTC()
			}
			s.PausedLocked(name, until)
		case "a":
			if s.appendedLocked(ticketID(e.request, appended), first, rest) {
				appended++
			}
		case "r":
			s.OutLocked(first)
		case "e":
			s.AskedLocked(first)
		case "i":
			s.StateLocked(first, lease.IsInside)
		}
	}
	if _, ours := s.made[e.request]; ours {
		s.made[e.request] = true
	}
	s.version, s.tag, s.behind = e.version, e.tag, false
}

// appendedLocked reports a new ticket, whose value says session, state, and record. It
// reports whether the ticket is of this session, and then was sent under the given ID.
func (s *session) appendedLocked(id, key, value string) (own bool) {
	number, _ := strconv.ParseUint(key, 10, 64)
	s.store.known = max(s.store.known, number)
	session, rest, _ := strings.Cut(value, " ")
	state, record, _ := strings.Cut(rest, " ")
	if session == s.id {
		s.JoinedLocked(id, key, number)
		return true
	}
	t := lease.RemoteTicket(key, number, record)
	if state == "i" {
		t.Ref = lease.IsInside
	}
	s.AppearedLocked(t)
	return false
}

// beginLocked reports what the session finds when it begins.
func (s *session) beginLocked(e entry) {
	paused := make(map[string]bool)
	for _, change := range e.changes {
		if pause, ok := strings.CutPrefix(change, "p "); ok {
			escaped, _, _ := strings.Cut(pause, " ")
			name, _ := url.PathUnescape(escaped)
			paused[name] = true
		}
	}
	s.OnlyLocked(nil, paused)
	slices.Sort(e.changes) // all numbers have 16 digits
	s.reportLocked(e)
}
