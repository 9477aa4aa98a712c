package serializer_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// slotted is an arrival at a queue with slots, where so many may be inside.
func slotted(limit int, names ...string) serializer.Arrival {
	a := ruled(serializer.Rule{Limit: limit})
	a.Slots = func() []string { return names }
	return a
}

// processes are engines that share queues by lock files.
func processes(t *testing.T, n int) (all []*serializer.Engine) {
	t.Helper()
	directory := t.TempDir()
	for range n {
		store, err := lockfile.Open(directory, lockfile.Options{})
		switch {
		case err != nil && runtime.GOOS == "linux":
			t.Fatal(err)
		case err != nil:
			t.Skip(err)
		}
		e := serializer.New(store, serializer.Options{})
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all
}

// listed are the slots of the tickets in the only queue of a list.
func listed(t *testing.T, e *serializer.Engine) (slots []string) {
	t.Helper()
	queues, err := e.Queues(t.Context())
	if err != nil || len(queues) != 1 || queues[0].Prefix != "a_" {
		t.Fatalf("the list is %+v, error %v; expected queue a_", queues, err)
	}
	for _, ticket := range queues[0].Tickets {
		slots = append(slots, ticket.Slot)
	}
	return slots
}

// Each inside has a slot that nobody else has, and all processes list it, and no queue of a slot.
func TestSlots(t *testing.T) {
	all := processes(t, 2)
	a := slotted(3, "http://[::1]:1", "b", "c")
	var turns []serializer.Turn
	var slots []string
	for i := range 3 {
		turn := enter(t, all[i%2], a)
		turns, slots = append(turns, turn), append(slots, turn.Slot())
	}
	waiting := join(t, all[1], a)
	for _, e := range all {
		if got := listed(t, e); !slices.Equal(got, append(slices.Clone(slots), "")) {
			t.Errorf("listed with %q; expected %q and one that waits", got, slots)
		}
	}
	if sorted := slices.Sorted(slices.Values(slots)); !slices.Equal(sorted, []string{"b", "c", "http://[::1]:1"}) {
		t.Errorf("inside with %q", slots)
	}
	turns[1].Leave()
	if last := waiting.enters(t); last.Slot() != slots[1] {
		t.Errorf("it has %q; %q was free", last.Slot(), slots[1])
	} else {
		last.Leave()
	}
	turns[0].Leave()
	turns[2].Leave()
	for _, e := range all {
		if queues, err := e.Queues(t.Context()); len(queues) > 0 || err != nil {
			t.Errorf("afterwards, the list is %+v, %v", queues, err)
		}
	}
}

// The slot that has been free for longest comes next. So one that fails at once fails a third
// of those who come one after another.
func TestSlotsTakeTurns(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		a := slotted(3, "a", "dead", "c")
		for i := range 300 {
			turn := enter(t, e, a)
			if want := []string{"a", "dead", "c"}[i%3]; turn.Slot() != want {
				t.Fatalf("turn %d has %s; expected %s", i, turn.Slot(), want)
			}
			turn.Leave()
		}
		first, second := enter(t, e, a), enter(t, e, a)
		second.Leave()
		first.Leave()
		for _, want := range []string{"c", "dead", "a"} {
			if turn := enter(t, e, a); turn.Slot() != want {
				t.Errorf("it has %s; expected %s, which was free for longest", turn.Slot(), want)
			} else {
				turn.Leave()
			}
		}
	})
}

// Whichever slot becomes free, one that is inside without a slot gets it. Here, more may be
// inside than there are slots.
func TestSlotThatComesFree(t *testing.T) {
	for leaves := range 2 {
		all := processes(t, 3)
		a := slotted(3, "a", "b")
		turns := []serializer.Turn{enter(t, all[0], a), enter(t, all[1], a)}
		slot := turns[leaves].Slot()
		waiting := join(t, all[2], a)
		waiting.waits(t, all[2])
		turns[leaves].Leave()
		turn := waiting.enters(t)
		if turn.Slot() != slot {
			t.Errorf("it has %q; %q was free", turn.Slot(), slot)
		}
		turn.Leave()
		turns[1-leaves].Leave()
	}
}

// If all slots come free together, one that waits takes one, and the others are free.
func TestSlotsThatComeFreeTogether(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		a := slotted(3, "a", "b")
		a.Timeout = wait.Patience
		for range 300 {
			first, second := enter(t, e, a), enter(t, e, a)
			waiting := join(t, e, a)
			var left sync.WaitGroup
			left.Go(first.Leave)
			second.Leave()
			waiting.enters(t).Leave()
			left.Wait()
		}
	})
}

// A wait for a slot ends as that in the queue does, and leaves nothing behind.
func TestSlotWaitEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		adjust func(*serializer.Arrival)
		end    func(*testing.T, *serializer.Engine, *waiter)
		reason serializer.Reason
		cause  error
	}{
		{"timeout", func(a *serializer.Arrival) { a.Timeout = time.Millisecond }, nil, serializer.ReasonTimeout, serializer.ErrTimeout},
		{"no wait", func(a *serializer.Arrival) { a.NoWait = true }, nil, serializer.ReasonTimeout, serializer.ErrTimeout},
		{"hung up", nil, func(_ *testing.T, _ *serializer.Engine, w *waiter) { w.GiveUp(errHungUp) }, serializer.ReasonGone, errHungUp},
		{"evicted", nil, func(t *testing.T, e *serializer.Engine, _ *waiter) {
			must(t, e.Evict(t.Context(), "a_", tokenOf(t, e, 1)))
		}, serializer.ReasonEvicted, serializer.ErrEvicted},
	} {
		t.Run(test.name, func(t *testing.T) {
			engines(t, func(t *testing.T, e *serializer.Engine) {
				holder := enter(t, e, slotted(2, "a"))
				a := slotted(2, "a")
				if test.adjust != nil {
					test.adjust(&a)
				}
				w := start(e, a)
				if test.end != nil {
					wait.Until(t, "it is inside, without a slot", func() bool { inside, _ := e.Count("a_"); return inside == 2 })
					w.waits(t, e)
					// Bug: lists said that it was inside, as if two had the slot.
					if states, _ := e.Queues(t.Context()); states[0].Inside != 1 || states[0].Tickets[1].State != serializer.StateWaiting {
						t.Errorf("the list is %+v", states)
					}
					test.end(t, e, w)
				}
				w.refused(t, test.reason, test.cause)
				if slots := listed(t, e); !slices.Equal(slots, []string{"a"}) {
					t.Errorf("inside with %q", slots)
				}
				holder.Leave()
				enter(t, e, slotted(1, "a")).Leave()
			})
		})
	}
}

// The end of the engine ends a wait for a slot.
func TestSlotWaitEndsWithItsEngine(t *testing.T) {
	e := newMemory()
	holder := enter(t, e, slotted(2, "a"))
	last := join(t, e, slotted(2, "a"))
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	last.refused(t, serializer.ReasonClosed, serializer.ErrClosed)
	<-holder.Context().Done()
	holder.Leave()
	must(t, <-closed)
}

// A pause of all queues keeps callers out of the queue, and no caller inside from a slot.
func TestPauseLeavesNobodyWithoutASlot(t *testing.T) {
	for _, name := range []string{"*", "a*", "a_"} {
		engines(t, func(t *testing.T, e *serializer.Engine) {
			holder := enter(t, e, slotted(2, "a"))
			inside := join(t, e, slotted(2, "a"))
			must(t, e.Pause(t.Context(), name, time.Time{}))
			outside := join(t, e, slotted(2, "a"))
			holder.Leave()
			inside.enters(t).Leave()
			if len(outside.result) > 0 {
				t.Errorf("pause of %s: somebody has entered", name)
			}
			must(t, e.Resume(t.Context(), name))
			outside.enters(t).Leave()
		})
	}
}

// Bug: when a list had lost slots, those of all who were inside already took the last one at random.
func TestSlotsInOrder(t *testing.T) {
	const callers = 12
	all, entered := processes(t, 2), make(chan uint64, callers)
	must(t, all[0].Pause(t.Context(), "a_", serializer.Forever))
	for i := range callers {
		all[i%2].Join(slotted(callers, "only"), func(turn serializer.Turn, err error) {
			must(t, err)
			entered <- turn.Token()
			turn.Leave()
		})
	}
	wait.Until(t, "all wait", func() bool { return all[0].Ahead("a_") == callers })
	must(t, all[0].Resume(t.Context(), "a_"))
	last := uint64(0)
	for range callers {
		token := <-entered
		if token < last {
			t.Errorf("token %d enters after %d", token, last)
		}
		last = token
	}
}

// What the list of slots no longer has is given to nobody, not even to those who wait already.
func TestSlotsTakenAway(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		var names atomic.Pointer[[]string]
		names.Store(&[]string{"a", "b"})
		a := slotted(2)
		a.Slots = func() []string { return *names.Load() }
		first, second := enter(t, e, a), enter(t, e, a)
		third := join(t, e, a)
		names.Store(&[]string{"a"})
		second.Leave()
		third.waits(t, e)
		first.Leave()
		if turn := third.enters(t); turn.Slot() != "a" {
			t.Errorf("it has %q, which was taken away", turn.Slot())
		} else {
			turn.Leave()
		}
		names.Store(new([]string))
		start(e, a).refused(t, serializer.ReasonStorage, serializer.ErrStorage)
	})
}

// If the ticket of a slot is taken out, the turn is revoked. When it has left, the slot is free.
func TestSlotEvicted(t *testing.T) {
	still := func() time.Time { return time.UnixMicro(1) } // so numbers have no gaps
	e := serializer.New(memory.New(memory.Options{Clock: still}), serializer.Options{})
	defer e.Close()
	a, causes := revoked(slotted(1, "a"))
	turn := enter(t, e, a)
	must(t, e.Evict(t.Context(), "%=a_%=a_", turn.Token()+1))
	wantRevoked(t, causes, serializer.ErrEvicted)
	<-turn.Context().Done()
	turn.Leave()
	if next := enter(t, e, a); next.Slot() != "a" {
		t.Errorf("the next has %q", next.Slot())
	}
}

// Names of slots may be any texts. Long ones, and those of long queues, are hashed.
func TestNamesOfSlots(t *testing.T) {
	e := newMemory()
	defer e.Close()
	for _, queue := range []string{"", "a%=b_", strings.Repeat("x", 150)} {
		names := []string{"b%=c", "b", "p00001", "ü/*", strings.Repeat("y", 500)}
		a := slotted(len(names), names...)
		a.Queue = queue
		for _, name := range names {
			turn := enter(t, e, a)
			defer turn.Leave()
			if turn.Slot() != name {
				t.Errorf("queue %q: it has %q; expected %q", queue, turn.Slot(), name)
			}
		}
	}
}
