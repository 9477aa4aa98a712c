package redis

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// report reports an entry of the log, unless it was. If one before it is missing, it asks
// for a poll.
func (s *session) report(e entry) {
	if slices.Contains(e.changes, "x "+s.id) {
		s.lease.End(lease.ErrEnded) // before its tickets vanish
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	switch {
	case s.over || e.version <= s.version:
	case s.version > 0 && (e.version > s.version+1 || e.before != s.tag):
		s.behind = true
		s.poll()
	default:
		s.reportLocked(e)
	}
}

// poll asks for a poll soon.
func (s *session) poll() {
	select {
	case s.wanted <- struct{}{}:
	default: // somebody has asked
	}
}

// reportLocked reports changes: each is a letter and arguments. Some are notes.
func (s *session) reportLocked(e entry) {
	for _, change := range e.changes {
		letter, argument, _ := strings.Cut(change, " ")
		first, rest, _ := strings.Cut(argument, " ")
		number, _ := strconv.ParseUint(first, 10, 64)
		switch t := s.tickets[number]; {
		case letter == "p":
			s.pausedLocked(first, rest)
		case letter == "a":
			s.store.known = max(s.store.known, number)
			s.appendedLocked(e, number, rest)
		case t == nil:
		case letter == "r":
			delete(s.tickets, number)
			if t.Local() {
				s.store.events.Removed(t)
			} else {
				s.store.events.Vanished(t)
			}
		case letter == "e" && t.Local():
			s.store.events.Evict(t.Queue, number)
		case letter == "i" && !t.Local():
			atomic.StoreUint64(&t.Ref, isInside)
		}
	}
	s.version, s.tag, s.behind = e.version, e.tag, false
	delete(s.sent, e.request())
}

// appendedLocked reports a new ticket, whose value says session, state, and record. One of
// our session that nobody wants any more is taken out.
func (s *session) appendedLocked(e entry, number uint64, value string) {
	session, rest, _ := strings.Cut(value, " ")
	state, record, _ := strings.Cut(rest, " ")
	sent := s.sent[e.request()]
	switch {
	case session != s.id:
		t := remoteTicket(number, record)
		if state == "i" {
			t.Ref = isInside
		}
		s.tickets[number] = t
		s.store.events.Appeared(t)
	case len(sent) == 0:
		s.removeLocked(number)
	default:
		t := sent[0]
		s.sent[e.request()] = sent[1:]
		t.Number = number
		if !s.store.events.Joined(t) {
			s.removeLocked(number)
			return
		}
		s.tickets[number] = t
		s.local++
	}
}

// pausedLocked reports when a pause ends, in microseconds since 1970; 0 means that it has
// ended.
func (s *session) pausedLocked(escaped, until string) {
	name, _ := url.PathUnescape(escaped)
	micros, _ := strconv.ParseInt(until, 10, 64)
	if micros == 0 {
		delete(s.store.pauses, escaped)
		s.store.events.Paused(name, time.Time{})
		return
	}
	s.store.pauses[escaped] = true
	s.store.events.Paused(name, time.UnixMicro(micros).UTC())
}

// beginLocked reports what the session finds when it begins.
func (s *session) beginLocked(e entry) {
	for name := range s.store.pauses {
		if !slices.ContainsFunc(e.changes, func(change string) bool { return strings.HasPrefix(change, "p "+name+" ") }) {
			s.pausedLocked(name, "0")
		}
	}
	slices.Sort(e.changes) // all numbers have 16 digits
	s.reportLocked(e)
}
