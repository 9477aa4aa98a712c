package redis

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// published reports an entry of the log that was published, unless one before it is
// missing. Its text begins with version and tag of the one before.
func (s *session) published(text string) {
	before, rest, _ := strings.Cut(text, "\n")
	version, body, found := strings.Cut(rest, "\n")
	if !found {
		return
	}
	e := parseEntry(version, body)
	if s.follows(before, e.version) {
		s.report([]entry{e})
		return
	}
	s.poll()
}

// follows reports whether an entry comes directly after the last one that was reported,
// or was reported.
func (s *session) follows(before string, version uint64) bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return version <= s.version || before == strconv.FormatUint(s.version, 10)+" "+s.tag
}

// poll asks for a poll soon.
func (s *session) poll() {
	select {
	case s.missed <- struct{}{}:
	default: // somebody has asked
	}
}

// report reports entries of the log, in order, unless they were.
func (s *session) report(entries []entry) {
	for _, e := range entries {
		if slices.Contains(e.changes, "x "+s.id) {
			s.lease.End(lease.ErrEnded)
			return
		}
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, e := range entries {
		if s.over || e.version > s.version+1 {
			return
		}
		if e.version <= s.version {
			continue
		}
		for _, change := range e.changes {
			s.changedLocked(e, change)
		}
		s.version, s.tag = e.version, e.tag
		tag, _, _ := strings.Cut(e.tag, ".")
		delete(s.sent, tag)
	}
}

// changedLocked reports one change: a letter, and arguments. Some letters are notes.
func (s *session) changedLocked(e entry, change string) {
	letter, argument, _ := strings.Cut(change, " ")
	if letter == "p" {
		name, until, _ := strings.Cut(argument, " ")
		s.pausedLocked(name, until)
		return
	}
	first, rest, _ := strings.Cut(argument, " ")
	number, _ := strconv.ParseUint(first, 10, 64)
	switch t := s.tickets[number]; {
	case letter == "a":
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

// appendedLocked reports a new ticket. One of our session that nobody waits for any more is
// taken out.
func (s *session) appendedLocked(e entry, number uint64, value string) {
	if id, _, _ := strings.Cut(value, " "); id != s.id {
		s.appearedLocked(number, value)
		return
	}
	s.store.known = max(s.store.known, number)
	tag, _, _ := strings.Cut(e.tag, ".")
	if len(s.sent[tag]) == 0 {
		s.removeLocked(number)
		return
	}
	t := s.sent[tag][0]
	s.sent[tag] = s.sent[tag][1:]
	t.Number = number
	if !s.store.events.Joined(t) {
		s.removeLocked(number)
		return
	}
	s.tickets[number] = t
	s.local++
}

// appearedLocked reports a ticket of another process. Its value says session, state, and
// record.
func (s *session) appearedLocked(number uint64, value string) {
	s.store.known = max(s.store.known, number)
	fields := strings.SplitN(value, " ", 3)
	if len(fields) < 3 {
		return
	}
	t := remoteTicket(number, fields[2])
	if t == nil {
		return
	}
	if fields[1] == "i" {
		t.Ref = isInside
	}
	s.tickets[number] = t
	s.store.events.Appeared(t)
}

// snapshotLocked reports what a session finds when it begins.
func (s *session) snapshotLocked(a answer) {
	last := a.entries[len(a.entries)-1]
	s.version, s.tag = last.version, last.tag
	for name := range s.store.pauses {
		if _, found := a.pauses[name]; !found {
			s.pausedLocked(name, "0")
		}
	}
	for name, value := range a.pauses {
		until, _, _ := strings.Cut(value, " ")
		s.pausedLocked(name, until)
	}
	numbers := make(map[uint64]string)
	for text, value := range a.tickets {
		if number, err := strconv.ParseUint(text, 10, 64); err == nil {
			numbers[number] = value
		}
	}
	for _, number := range slices.Sorted(maps.Keys(numbers)) {
		s.appearedLocked(number, numbers[number])
	}
}

// pausedLocked reports when a pause ends, in microseconds since 1970; 0 means that it has
// ended.
func (s *session) pausedLocked(escaped, until string) {
	name, err := url.PathUnescape(escaped)
	micros, _ := strconv.ParseInt(until, 10, 64)
	if err != nil {
		return
	}
	if micros == 0 {
		delete(s.store.pauses, escaped)
		s.store.events.Paused(name, time.Time{})
		return
	}
	s.store.pauses[escaped] = true
	s.store.events.Paused(name, time.UnixMicro(micros).UTC())
}
