package testlease

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var historyTime = flag.Duration("for", 0, "how long TestHistories goes on; at least a round")

// Histories has clients of processes take turns under faults, by Jepsen's method, and
// judges what they have seen. No process is stopped, so two must never be inside at once.
type Histories struct {
	TTL     time.Duration
	Engines []*serializer.Engine // one a process
	Links   [][]*testrelay.Relay // from each process to the servers

	// Faults are what happens to the servers, each once in a round. What happens to all links comes by itself.
	Faults func() map[string]func()

	// Rest follows each fault. Without it, a rest is half a second.
	Rest func()

	// Excused reports whether the server itself has let two in since the last call, as the
	// documents say. Nil is never.
	Excused func() bool
}

// Run goes on for as long as the flag -for says.
func (h Histories) Run(t *testing.T) {
	t.Helper()
	rounds, total, slotted, refused, seen := 0, 0, 0, 0, make(map[string]int)
	for start := time.Now(); rounds == 0 || time.Since(start) < *historyTime; rounds++ {
		all, onSlots, stall := h.round(seen)
		total, slotted, refused = total+all.turns, slotted+onSlots.turns, refused+len(all.Refused)
		excuse := h.Excused != nil && h.Excused()
		if stall > h.TTL/10 {
			// The machine kept this process from running for longer than the margin of a
			// lease: then two may be inside, as the documents say.
			seen["not judged, because this process did not run"]++
		} else if err := errors.Join(all.Wrong, onSlots.Wrong); err != nil {
			if !excuse {
				t.Fatal(err)
			}
			seen["two inside, by the server"]++
		}
	}
	t.Logf("%d turns and %d with slots in %d rounds, %d refused; faults and rounds: %v", total, slotted, rounds, refused, seen)
	if total < 50 || slotted < 50 {
		t.Errorf("only %d turns and %d with slots: the test shows nothing", total, slotted)
	}
}

// round runs the clients while each fault happens once. It returns the longest time for which this
// process did not run.
func (h Histories) round(seen map[string]int) (all, onSlots *Clients, stall time.Duration) {
	stalled := testprocess.LongestStall()
	slots := Arrival("slots_", 30*time.Second)
	slots.Rule.Limit, slots.Slots = 2, func() []string { return []string{"a", "b"} }
	all, onSlots = Come(Queue, 2, h.Engines...), come(slots, 2, h.Engines...)
	clients := []*Clients{all, onSlots}
	for i, e := range h.Engines {
		// Turns of a queue with one process pass on and end also while it gets no answers.
		clients = append(clients, Come(fmt.Sprintf("b%d_", i), 3, e))
	}
	faults := h.Faults()
	maps.Copy(faults, h.linkFaults())
	for name, fault := range faults {
		seen[name]++
		all.during(name)
		onSlots.during(name)
		fault()
		if h.Rest == nil {
			time.Sleep(500 * time.Millisecond)
		} else {
			h.Rest()
		}
	}
	for _, c := range clients {
		c.End()
	}
	return all, onSlots, stalled()
}

// linkFaults are what happens to the links of a process, or to all.
func (h Histories) linkFaults() map[string]func() {
	all := slices.Concat(h.Links...)
	each := func(links []*testrelay.Relay, do func(*testrelay.Relay)) {
		for _, link := range links {
			do(link)
		}
	}
	part := func(hold func(*testrelay.Relay, bool)) {
		links := h.Links[rand.IntN(len(h.Links))]
		each(links, func(link *testrelay.Relay) { hold(link, true) })
		time.Sleep(h.TTL + time.Second)
		each(links, func(link *testrelay.Relay) { hold(link, false) })
	}
	return map[string]func(){
		"a process cut off":        func() { part((*testrelay.Relay).Part) },
		"a process gets no answer": func() { part((*testrelay.Relay).Hold) },
		"answers lost while callers leave": func() {
			for range 10 {
				each(all, func(link *testrelay.Relay) { link.Hold(true) })
				time.Sleep(rand.N(time.Second))
				each(all, func(link *testrelay.Relay) {
					link.Cut()
					link.Hold(false)
				})
				time.Sleep(rand.N(500 * time.Millisecond))
			}
		},
	}
}
