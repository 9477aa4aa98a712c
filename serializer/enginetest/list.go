package enginetest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// requester is a requester that returns its name.
type requester string

func (r requester) Request() serializer.Request { return serializer.Request{Path: string(r)} }

// clockSlack is how far the time in a list may be from the wall clock.
const clockSlack = time.Second

// All engines list the same queues and tickets, in order; only what a process
// knows of its own tickets may be missing from the lists of others.
func testList(s *space) {
	start := time.Now()
	limited := s.ruled(serializer.Rule{Limit: 1})
	limited.Queue, limited.Requester = s.name("b_"), requester("holder")
	holder := s.enter(0, limited)
	limited.Requester = requester("waiter")
	waiter := s.join(1, limited)
	names := []string{s.name("b_")}
	for i, text := range []string{"c", "a_b", "a", "a_", "b"} {
		a := s.arrival()
		a.Queue = s.name(text)
		names = append(names, a.Queue)
		s.enter(i, a)
	}
	slices.Sort(names)
	for i, e := range s.engines {
		if listed := s.listed(e); !slices.Equal(listed, names) {
			s.Fatalf("engine %d lists the queues %q; expected %q", i, listed, names)
		}
		q := s.queue(e, limited.Queue)
		if len(q.Tickets) != 2 || q.Inside != 1 || q.Waiting != 1 || q.Limit != 1 {
			s.Fatalf("engine %d: %+v; expected one inside, one waiting, limit 1", i, q)
		}
		inside, behind := q.Tickets[0], q.Tickets[1]
		if inside.Token != strconv.FormatUint(holder.turn.Token(), 10) || inside.Client != holder.arrival.Client.String() ||
			inside.State != serializer.StateInside || inside.Owner == "" {
			s.Errorf("engine %d: %+v; expected token %d of %v, inside, with an owner", i, inside, holder.turn.Token(), holder)
		}
		if behind.Client != waiter.arrival.Client.String() || behind.State != serializer.StateWaiting || !behind.Entered.IsZero() {
			s.Errorf("engine %d: %+v; expected %v, waiting, not entered", i, behind, waiter)
		}
		for _, t := range q.Tickets {
			if t.Arrived.Before(start.Add(-clockSlack)) || t.Arrived.After(time.Now().Add(clockSlack)) {
				s.Errorf("engine %d: arrived %s; the case began at %s", i, t.Arrived, start)
			}
		}
	}
	for v, want := range map[*visitor]requester{holder: "holder", waiter: "waiter"} {
		if state, _ := v.ticket(); state.Requester != want {
			s.Errorf("%v: requester %v; expected %q", v, state.Requester, want)
		}
	}
	own, _ := holder.ticket()
	if own.Entered.Before(start.Add(-clockSlack)) || own.Entered.After(time.Now().Add(clockSlack)) || !own.Since.Equal(own.Entered) {
		s.Errorf("%v: entered %s, since %s; expected now, and the same", holder, own.Entered, own.Since)
	}
}

// A queue is listed for as long as it has tickets.
func testListEmpty(s *space) {
	for i := range 10 {
		v, waiter := s.enter(i, s.arrival()), s.join(i+1, s.arrival())
		waiter.hangUp(errHungUp)
		_ = waiter.refused(serializer.ReasonGone, errHungUp)
		v.leave()
	}
	for i, e := range s.engines {
		s.until("nothing is listed by engine "+strconv.Itoa(i), func() bool { return len(s.list(e)) == 0 })
	}
}

// An engine that counts knows the tickets that it issued.
func testCount(s *space) {
	counter, ok := s.on(0).(serializer.Counter)
	if !ok {
		return
	}
	queue := s.arrival().Queue
	expect := func(inside, waiting int) {
		s.Helper()
		if i, w := counter.Count(queue); i != inside || w != waiting {
			s.Errorf("count says %d inside, %d waiting; expected %d and %d", i, w, inside, waiting)
		}
	}
	expect(0, 0)
	holder := s.enter(0, s.arrival())
	first, second := s.join(0, s.arrival()), s.join(0, s.arrival())
	expect(1, 2)
	holder.leave()
	first.enters()
	expect(1, 1)
	first.leave()
	second.enters().leave()
	s.until("nobody is counted", func() bool {
		inside, waiting := counter.Count(queue)
		return inside == 0 && waiting == 0
	})
}

// Every text is a queue of its own.
func testNames(s *space) {
	texts := []string{"a", "a_", "a_b_", "", "a_0", "a0", "a_0000", "a/b", "a//b", "/", "!evict", "!evict/1/", "%2F", "%", "ü",
		"\x00\xff", "\x00", "a ", " a", ".", "..", "a\nb", strings.Repeat("x", 150)}
	var names []string
	for i, text := range texts {
		a := s.arrival()
		a.Queue = s.name(text)
		names = append(names, a.Queue)
		if v := s.enter(i, a); v.turn.Position() != 0 {
			s.Errorf("%v: position %d; expected nobody before it", v, v.turn.Position())
		}
	}
	slices.Sort(names)
	for i, e := range s.engines {
		if listed := s.listed(e); !slices.Equal(listed, names) {
			s.Errorf("engine %d lists %q; expected %q", i, listed, names)
		}
	}
}

// listed are the names of the queues that an engine lists.
func (s *space) listed(e serializer.Engine) (names []string) {
	for _, q := range s.list(e) {
		names = append(names, q.Prefix)
	}
	return names
}
