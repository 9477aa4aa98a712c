package testlease

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// History is who was inside a queue from when to when, on one clock.
type History struct {
	start time.Time

	mu    sync.Mutex
	holds []*Hold
}

// Hold is one turn. Its times are since the history began.
type Hold struct {
	Token       uint64
	Asked, Came time.Duration
	Went        time.Duration // when the holder left, or the queue ceased to vouch for it
	Slot        string        // that the holder had; empty in a queue without slots
}

// NewHistory begins a history now.
func NewHistory() *History { return &History{start: time.Now()} }

// Asks begins the hold of a client that asks for its turn now. It is not yet inside.
func (h *History) Asks() *Hold {
	return &Hold{Asked: time.Since(h.start), Went: math.MaxInt64}
}

// Enter notes that a client is inside.
func (h *History) Enter(hold *Hold, token uint64, slot string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.Token, hold.Slot, hold.Came = token, slot, time.Since(h.start)
	h.holds = append(h.holds, hold)
}

// Leave notes the end of a hold, or that its process was stopped or its turn revoked. The first
// of these counts.
func (h *History) Leave(hold *Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.Went = min(hold.Went, time.Since(h.start))
}

// Len counts the holds.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// First is the token of the first hold, and when it began; 0 if there was none.
func (h *History) First() (token uint64, came time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holds) == 0 {
		return 0, h.start
	}
	return h.holds[0].Token, h.start.Add(h.holds[0].Came)
}

// Gaps are the times between one hold and the next.
func (h *History) Gaps() (gaps []time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, hold := range h.holds[1:] {
		gaps = append(gaps, hold.Came-h.holds[i].Went)
	}
	return gaps
}

// Judge looks for moments at which the turns can have begun and ended so that at most one was
// inside, in the order of tokens. A turn begins between the request and the arrival behind the
// queue, and ends at any time after its hold. The earliest moment for each is the best for all
// that follow. In a queue with slots, at most one had each, in any order.
func (h *History) Judge() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	slots := make(map[string][]*Hold)
	for _, hold := range h.holds {
		slots[hold.Slot] = append(slots[hold.Slot], hold)
	}
	slices.SortFunc(slots[""], func(a, b *Hold) int { return cmp.Compare(a.Token, b.Token) })
	for _, holds := range slots {
		if err := judge(holds); err != nil {
			return err
		}
	}
	return nil
}

func judge(holds []*Hold) error {
	before, free := new(Hold), time.Duration(0)
	for _, hold := range holds {
		begins := max(free, hold.Asked)
		if hold.Token == before.Token || begins > hold.Came {
			return fmt.Errorf("in a history of %d turns, two were inside or out of order: %+v, then %+v", len(holds), *before, *hold)
		}
		before, free = hold, max(begins, hold.Went)
	}
	return nil
}

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
	rounds, total, slotted, stalled, excused, refused, seen := 0, 0, 0, 0, 0, 0, make(map[string]int)
	for start := time.Now(); rounds == 0 || time.Since(start) < *historyTime; rounds++ {
		all, onSlots, refusals, stall := h.round(seen)
		refused += refusals
		total, slotted = total+all.Len(), slotted+onSlots.Len()
		excuse := h.Excused != nil && h.Excused()
		if stall > h.TTL/10 {
			// The machine kept this process from running for longer than the margin of a
			// lease: then two may be inside, as the documents say.
			stalled++
		} else if err := errors.Join(all.Judge(), onSlots.Judge()); err != nil {
			if !excuse {
				t.Fatal(err)
			}
			excused++
		}
	}
	t.Logf("%d turns and %d with slots in %d rounds, %d refused, faults %v; %d rounds not judged, because this process did not run for %s; %d rounds with two inside, by the server",
		total, slotted, rounds, refused, seen, stalled, h.TTL/10, excused)
	if total < 50 || slotted < 50 {
		t.Errorf("only %d turns and %d with slots: the test shows nothing", total, slotted)
	}
}

// round runs the clients while each fault happens once. It returns the longest time for which this
// process did not run.
func (h Histories) round(seen map[string]int) (all, onSlots *Clients, refused int, stall time.Duration) {
	stalled := testprocess.LongestStall()
	all, onSlots = Come(Queue, 2, h.Engines...), ComeToSlots("slots_", []string{"a", "b"}, 2, h.Engines...)
	alone := []*Clients{onSlots}
	for i, e := range h.Engines {
		// Turns of a queue with one process pass on and end also while it gets no answers.
		alone = append(alone, Come(fmt.Sprintf("b%d_", i), 3, e))
	}
	faults := h.Faults()
	maps.Copy(faults, h.linkFaults())
	for name, fault := range faults {
		seen[name]++
		fault()
		if h.Rest == nil {
			time.Sleep(500 * time.Millisecond)
		} else {
			h.Rest()
		}
	}
	refused = len(all.End())
	for _, clients := range alone {
		clients.End()
	}
	return all, onSlots, refused, stalled()
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
		"connections broken": func() {
			for range 5 {
				each(all, (*testrelay.Relay).Cut)
				time.Sleep(200 * time.Millisecond)
			}
		},
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
