package serializer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// slotted is an arrival at a queue with slots, where so many may be inside.
func slotted(limit int, names ...string) serializer.Arrival {
	a := ruled(serializer.Rule{Limit: limit})
	a.Slots = func() []string { return names }
	return a
}

// The slot that has been free for longest comes next. So one that fails at once fails a third
// of those who come one after another.
func TestSlotsTakeTurns(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		var given []string
		next := func() serializer.Turn {
			turn := enter(t, e, slotted(3, "a", "dead", "c"))
			given = append(given, turn.Slot())
			return turn
		}
		for range 6 {
			next().Leave()
		}
		first, second := next(), next()
		second.Leave()
		first.Leave()
		for range 3 {
			next().Leave()
		}
		if got := strings.Join(given, " "); got != "a dead c a dead c a dead c dead a" {
			t.Errorf("the slots were given as %s", got)
		}
	})
}

// More may be inside than there are slots. Then one that is inside without a slot gets whichever
// becomes free, also in a pause, which keeps others out of the queue.
func TestSlotComesFree(t *testing.T) {
	for i, pause := range []string{"*", "a*", "a_"} {
		engines(t, func(t *testing.T, e *serializer.Engine) {
			a := slotted(3, "a", "b")
			turns := []serializer.Turn{enter(t, e, a), enter(t, e, a)}
			inside := join(t, e, a)
			must(t, e.Pause(t.Context(), pause, time.Time{}))
			outside := join(t, e, a)
			turns[i%2].Leave()
			turn := inside.enters(t)
			if turn.Slot() != turns[i%2].Slot() {
				t.Errorf("it has %q; %q was free", turn.Slot(), turns[i%2].Slot())
			}
			turn.Leave()
			if len(outside.result) > 0 {
				t.Errorf("pause of %s: somebody has entered", pause)
			}
			must(t, e.Resume(t.Context(), pause))
			outside.enters(t).Leave()
			turns[1-i%2].Leave()
		})
	}
}

// A wait for a slot ends as that in the queue does, and leaves nothing behind.
func TestSlotWaitEnds(t *testing.T) {
	for name, test := range map[string]struct {
		adjust func(*serializer.Arrival) // the arrival ends by itself
		end    func(*testing.T, *serializer.Engine, *waiter)
		cause  error
	}{
		"timeout":  {func(a *serializer.Arrival) { a.Timeout = time.Millisecond }, nil, serializer.ErrTimeout},
		"no wait":  {func(a *serializer.Arrival) { a.NoWait = true }, nil, serializer.ErrTimeout},
		"no slots": {func(a *serializer.Arrival) { *a = slotted(2); a.Timeout = time.Millisecond }, nil, serializer.ErrTimeout},
		"hung up":  {nil, func(_ *testing.T, _ *serializer.Engine, w *waiter) { w.GiveUp(errHungUp) }, errHungUp},
		"evicted": {nil, func(t *testing.T, e *serializer.Engine, _ *waiter) {
			must(t, e.Evict(t.Context(), "a_", tokenOf(t, e, 1)))
		}, serializer.ErrEvicted},
		"closed": {nil, func(_ *testing.T, e *serializer.Engine, _ *waiter) { go e.Close() }, serializer.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, e *serializer.Engine) {
				holder, a := enter(t, e, slotted(2, "a")), slotted(2, "a")
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
				w.refused(t, serializer.ReasonOf(test.cause), test.cause)
				holder.Leave()
				if name != "closed" {
					enter(t, e, slotted(1, "a")).Leave()
				}
			})
		})
	}
}

// Bug: when a list had lost slots, those of all who were inside already took the last one at random.
func TestSlotsInOrder(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	a := slotted(4, "only")
	remote := s.appear("a_", 1, a.Rule) // without a slot
	waiters := []*waiter{join(t, e, a), join(t, e, a), join(t, e, a)}
	waiters[0].waits(t, e)
	s.Vanished(remote)
	for _, next := range waiters {
		next.enters(t).Leave() // the others must not be on the slot
	}
}

// lateSlot is a store that meets the test before and after it says that somebody has slot a.
type lateSlot struct {
	*script
	meet chan bool
}

func (s lateSlot) Stands(t *serializer.Ticket) bool {
	if strings.HasPrefix(t.Queue, "%=a") {
		s.meet <- true
		s.meet <- true
	}
	return true
}

// Bug: a caller whose slot was given at that moment counted twice, and one that does not wait was refused
// although a slot was free.
func TestSlotIsFreeForNextCaller(t *testing.T) {
	s := lateSlot{newScript(), make(chan bool)}
	e := serializer.New(s, serializer.Options{})
	a := slotted(2, "a", "b")
	first := start(e, a)
	<-s.meet
	a.NoWait = true
	_, err := e.Enter(t.Context(), a)
	<-s.meet
	must(t, err)
	first.enters(t)
}

// If the ticket of a slot is taken out, the turn is revoked. When it has left, the slot is free.
func TestSlotEvicted(t *testing.T) {
	e := serializer.New(newScript(), serializer.Options{}) // which numbers tickets without gaps
	a, causes := revoked(slotted(1, "a"))
	turn := enter(t, e, a)
	must(t, e.Evict(t.Context(), "%=a%=a_", turn.Token()+1))
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
