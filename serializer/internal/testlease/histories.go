package testlease

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

var historyTime = flag.Duration("for", 0, "how long TestHistories goes on; at least a round")

// Histories has clients of processes take turns under faults, by Jepsen's method, and
// judges what they have seen. No process is stopped, so two must never be inside at once.
type Histories struct {
	TTL     time.Duration
	Engines []*Engine // one a process

	// Faults are what happens to the servers and to the links, each once in a round.
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
	rounds, total, stalled, excused, refused, seen := 0, 0, 0, 0, new(atomic.Int64), make(map[string]int)
	for start := time.Now(); rounds == 0 || time.Since(start) < *historyTime; rounds++ {
		history := NewHistory()
		stall := h.round(history, refused, seen)
		total += history.Len()
		excuse := h.Excused != nil && h.Excused()
		if stall > h.TTL/10 {
			// The machine kept this process from running for longer than the margin of a
			// lease: then two may be inside, as the documents say.
			stalled++
		} else if err := history.Judge(); err != nil {
			if !excuse {
				t.Fatal(err)
			}
			excused++
		}
	}
	t.Logf("%d turns in %d rounds, %d refused, faults %v; %d rounds not judged, because this process did not run for %s; %d rounds with two inside, by the server",
		total, rounds, refused.Load(), seen, stalled, h.TTL/10, excused)
	if total < 50 {
		t.Errorf("only %d turns: the test shows nothing", total)
	}
}

// round runs the clients while each fault happens once. It returns the longest time for which this
// process did not run.
func (h Histories) round(history *History, refused *atomic.Int64, seen map[string]int) (stall time.Duration) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { stall = longestStall(stop) })
	clients := func(history *History, refused *atomic.Int64, e *Engine, queue string, numbers ...int) {
		for _, client := range numbers {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						takeTurn(history, refused, e, queue, client)
					}
				}
			})
		}
	}
	for i, e := range h.Engines {
		clients(history, refused, e, Queue, 2*i, 2*i+1)
		// Turns of a queue with one process pass on and end also while it gets no answers.
		clients(NewHistory(), new(atomic.Int64), e, fmt.Sprintf("b%d_", i), 0, 1, 2)
	}
	for name, fault := range h.Faults() {
		seen[name]++
		fault()
		if h.Rest == nil {
			time.Sleep(500 * time.Millisecond)
		} else {
			h.Rest()
		}
	}
	close(stop)
	group.Wait()
	return stall
}

// takeTurn enters and leaves. The hold ends when its turn is revoked.
func takeTurn(history *History, refused *atomic.Int64, e *Engine, queue string, client int) {
	hold := history.Asks(client)
	end := func() { history.Leave(hold) }
	turn, err := e.Enter(context.Background(), serializer.Arrival{Queue: queue, Timeout: 30 * time.Second, Revoke: func(error) { end() }})
	if err != nil {
		refused.Add(1)
		time.Sleep(50 * time.Millisecond)
		return
	}
	history.Enter(hold, turn.Token())
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	end()
	turn.Leave()
}

// longestStall watches for times in which nothing here runs.
func longestStall(stop <-chan struct{}) (stall time.Duration) {
	const tick = 10 * time.Millisecond
	for {
		before := time.Now()
		select {
		case <-stop:
			return stall
		case <-time.After(tick):
			stall = max(stall, time.Since(before)-tick)
		}
	}
}
