package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testjudge"
)

// steps is the number of steps in a random history.
const steps = 150

// queueTexts are the queues. In the second one, no caller drops the oldest. The last one is
// paused at times.
var queueTexts = []string{"a_", "a", "a_b_"}

// someRules are the rules of the callers in random runs.
var someRules = []serializer.Rule{{}, {}, {Limit: 2}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}, {Shared: true, Limit: 2}, {Shared: true, Limit: 3}}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Callers arrive, enter by turns and rules, hang up, are evicted or superseded, find the
// queue full or do not wait, and leave; queues are paused and resumed. After each step, all engines list
// what the model says, and all callers have got the answers that it says.
func engineHistory(t testing.TB, o Options, stores []serializer.Store) {
	t.Logf("seed %d", o.Seed)
	h := &history{TB: t, Options: o, rand: rand.New(rand.NewPCG(o.Seed, 0)), queues: make(map[string]*modelQueue)}
	for _, store := range stores {
		h.engines = append(h.engines, serializer.New(store, serializer.Options{}))
	}
	t.Cleanup(h.end)
	for _, text := range queueTexts {
		h.queues[serializer.QueueName(text)] = new(modelQueue)
	}
	for range steps {
		h.compare(h.step())
	}
	for name, q := range h.queues {
		h.compare(h.setPaused(name, false))
		for len(q.tickets) > 0 {
			h.compare(h.leave(q.tickets[0]))
		}
	}
}

// history is what has happened to the engines and to the model. The model has the callers
// of all processes in one queue, without a store.
type history struct {
	testing.TB
	Options
	rand    *rand.Rand
	engines []*serializer.Engine
	callers []*caller
	queues  map[string]*modelQueue
}

// modelQueue is the tickets of a queue in order. Those that are inside come first.
type modelQueue struct {
	tickets []*caller
	paused  bool
}

// waiting returns those that are not inside.
func (q *modelQueue) waiting() []*caller {
	inside := 0
	for inside < len(q.tickets) && q.tickets[inside].inside {
		inside++
	}
	return q.tickets[inside:]
}

// step makes something happen that is possible now.
func (h *history) step() (what string) {
	h.Helper()
	var inside, waiting []*caller
	for _, text := range queueTexts {
		q := h.queues[serializer.QueueName(text)]
		n := len(q.tickets) - len(q.waiting())
		inside, waiting = append(inside, q.tickets[:n]...), append(waiting, q.tickets[n:]...)
	}
	switch n := h.rand.IntN(20); {
	case n < 6 && len(inside) > 0:
		return h.leave(pick(h.rand, inside...))
	case n < 8 && len(waiting) > 0:
		e := pick(h.rand, waiting...)
		h.takeOut(e, string(serializer.ReasonGone))
		e.hangUp()
		return fmt.Sprint(e, " hangs up")
	case n < 10 && len(inside)+len(waiting) > 0:
		return h.evict(pick(h.rand, append(inside, waiting...)...))
	case n == 10:
		name := serializer.QueueName(queueTexts[2])
		return h.setPaused(name, !h.queues[name].paused)
	default:
		return h.arrive()
	}
}

func (h *history) arrive() (what string) {
	text := pick(h.rand, queueTexts...)
	a := serializer.Arrival{Queue: serializer.QueueName(text), Timeout: 2 * h.Patience}
	a.Rule, a.MaxWaiting = pick(h.rand, someRules...), pick(h.rand, 0, 0, 3)
	// All arrivals of a queue agree: one that is to be refused may have a ticket for a
	// moment, which must not supersede another one.
	a.DropOldest = text != queueTexts[1]
	a.NoWait = !a.DropOldest && a.MaxWaiting == 0 && h.rand.IntN(2) == 0
	q := h.queues[a.Queue]
	e := h.start(a)
	e.position, e.answer = len(q.tickets), "waits"
	if a.MaxWaiting > 0 && len(q.waiting()) >= a.MaxWaiting && !a.DropOldest {
		e.answer = string(serializer.ReasonFull)
	} else {
		q.tickets = append(q.tickets, e)
		h.admit(q)
		if a.NoWait && !e.inside {
			h.takeOut(e, string(serializer.ReasonTimeout))
		}
	}
	return fmt.Sprint(e, " arrives")
}

// admit lets those enter whose turn it is in the model: the first that wait, as long as each
// may be inside together with all before it. Then it takes out the first that is superseded.
func (h *history) admit(q *modelQueue) {
	var turns []testjudge.Turn
	for _, e := range q.tickets {
		turns = append(turns, testjudge.Turn{Rule: e.arrival.Rule})
		if !e.inside && (q.paused || !testjudge.Together(turns...)) {
			break
		}
		e.inside, e.answer = true, enteredAt(e.position)
	}
	waiting := q.waiting()
	for i, e := range waiting {
		if e.arrival.DropOldest && e.arrival.MaxWaiting > 0 && len(waiting[i:]) > e.arrival.MaxWaiting {
			h.takeOut(e, string(serializer.ReasonSuperseded))
			return
		}
	}
}

// takeOut takes a caller out of its queue in the model.
func (h *history) takeOut(e *caller, answer string) {
	e.answer = answer
	q := h.queues[e.arrival.Queue]
	q.tickets = slices.DeleteFunc(q.tickets, func(other *caller) bool { return other == e })
	h.admit(q)
}

func (h *history) leave(e *caller) (what string) {
	h.takeOut(e, "left")
	e.leave()
	return fmt.Sprint(e, " leaves")
}

func (h *history) evict(e *caller) (what string) {
	h.Helper()
	if err := pick(h.rand, h.engines...).Evict(context.Background(), e.arrival.Queue, e.token()); err != nil {
		h.Fatalf("evicting %v: %v", e, err)
	}
	if e.inside {
		h.until(h, "the holder's turn is revoked", func() bool { return len(e.revoked) > 0 })
	} else {
		h.takeOut(e, string(serializer.ReasonEvicted))
	}
	return fmt.Sprint(e, " is evicted")
}

func (h *history) setPaused(name string, paused bool) (what string) {
	h.Helper()
	q := h.queues[name]
	do := func(e *serializer.Engine) error { return e.Resume(context.Background(), name) }
	if paused {
		do = func(e *serializer.Engine) error { return e.Pause(context.Background(), name, time.Time{}) }
	}
	if err := do(pick(h.rand, h.engines...)); err != nil {
		h.Fatalf("pausing or resuming %q: %v", name, err)
	}
	q.paused = paused
	h.admit(q)
	return fmt.Sprintf("queue %q is paused: %t", name, paused)
}

// compare waits until everything is as the model says.
func (h *history) compare(after string) {
	h.Helper()
	want, got := h.describe(func(e *caller) string { return e.answer }, h.model), ""
	for _, e := range h.engines {
		if !wait.Poll(h.Patience, func() bool {
			got = h.describe((*caller).got, func() []serializer.QueueState { return h.list(e) })
			return got == want
		}) {
			h.Fatalf("%s:\nis       %s\nexpected %s", after, got, want)
		}
	}
}

// describe describes what callers have got, and then the queues: the ticket of a caller that was refused
// must not be in a list that is read afterwards.
func (h *history) describe(answer func(*caller) string, list func() []serializer.QueueState) string {
	var b strings.Builder
	for _, e := range h.callers {
		fmt.Fprintf(&b, "%v %s; ", e.arrival.Client, answer(e))
	}
	for _, q := range list() {
		fmt.Fprintf(&b, "%q, paused %t:", q.Prefix, q.PausedUntil != nil)
		for _, t := range q.Tickets {
			fmt.Fprintf(&b, " %s %s,", t.Client, t.State)
		}
	}
	return b.String()
}

// model lists the queues of the model, as engines should.
func (h *history) model() (list []serializer.QueueState) {
	for _, name := range slices.Sorted(maps.Keys(h.queues)) {
		q, s := h.queues[name], serializer.QueueState{Prefix: name}
		if q.paused {
			s.PausedUntil = new(time.Time)
		}
		for _, e := range q.tickets {
			t := serializer.TicketState{Client: e.arrival.Client, State: serializer.StateWaiting}
			if e.inside {
				t.State = serializer.StateInside
			}
			s.Tickets = append(s.Tickets, t)
		}
		if q.paused || len(q.tickets) > 0 {
			list = append(list, s)
		}
	}
	return list
}
