package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// steps is the number of steps in a random history.
const steps = 150

// queueTexts are the queues. In the second one, no caller drops the oldest. The last one is
// paused at times.
var queueTexts = []string{"a_", "a", "a_b_"}

// someRules are the rules of the callers in random runs.
var someRules = []serializer.Rule{{}, {}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Callers arrive, enter by turns and rules, hang up, are evicted or superseded, find the
// queue full, and leave; queues are paused and resumed. After each step, all engines list
// what the model says, and all callers have got the answers that it says.
func engineHistory(c *crowd) {
	c.Logf("seed %d", c.Seed)
	h := &history{crowd: c, rand: rand.New(rand.NewPCG(c.Seed, 0)), queues: make(map[string]*queue.Queue[*expected])}
	for _, text := range queueTexts {
		h.queues[c.QueueName(text)] = new(queue.Queue[*expected])
	}
	for range steps {
		h.compare(h.step())
	}
	for name, q := range h.queues {
		h.compare(h.setPaused(name, false))
		for e := range q.All() {
			h.compare(h.leave(e))
		}
	}
}

// history is what has happened to the engines and to the model. The model has the callers
// of all processes in one queue, without a store.
type history struct {
	*crowd
	rand   *rand.Rand
	queues map[string]*queue.Queue[*expected]
	all    []*expected
}

// expected is what should become of a caller. It is its ticket in the model.
type expected struct {
	queue.Item[*expected]
	*caller
	number   int
	position int
	answer   string // as caller.got describes it
}

func (e *expected) Before(o *expected) bool { return e.number < o.number }
func (e *expected) Local() bool             { return true }

// step makes something happen that is possible now.
func (h *history) step() (what string) {
	h.Helper()
	var inside, waiting []*expected
	for _, text := range queueTexts {
		for e := range h.queues[h.QueueName(text)].All() {
			if e.Admitted() {
				inside = append(inside, e)
			} else {
				waiting = append(waiting, e)
			}
		}
	}
	switch n := h.rand.IntN(20); {
	case n < 6 && len(inside) > 0:
		return h.leave(pick(h.rand, inside...))
	case n < 8 && len(waiting) > 0:
		e := pick(h.rand, waiting...)
		h.takeOut(e, string(serializer.ReasonGone))
		e.hangUp(errHungUp)
		return fmt.Sprintf("%d hangs up", e.number)
	case n < 10 && len(inside)+len(waiting) > 0:
		return h.evict(pick(h.rand, append(inside, waiting...)...))
	case n == 10:
		name := h.QueueName(queueTexts[2])
		return h.setPaused(name, !h.queues[name].Paused())
	default:
		return h.arrive()
	}
}

func (h *history) arrive() (what string) {
	text := pick(h.rand, queueTexts...)
	a := h.arrival(text)
	a.Rule, a.MaxWaiting = pick(h.rand, someRules...), pick(h.rand, 0, 0, 3)
	// All arrivals of a queue agree: one that is to be refused may have a ticket for a
	// moment, which must not supersede another one.
	a.DropOldest = text != queueTexts[1]
	q := h.queues[a.Queue]
	e := &expected{caller: h.start(len(h.all), a), number: len(h.all), position: q.Len(), answer: "waits"}
	e.Rule = a.Rule
	h.all = append(h.all, e)
	if a.DropOldest {
		e.MaxWaiting = a.MaxWaiting
	}
	if a.MaxWaiting > 0 && q.Waiting() >= a.MaxWaiting && !a.DropOldest {
		e.answer = string(serializer.ReasonFull)
	} else {
		q.Insert(e)
		h.admit(q)
	}
	return fmt.Sprintf("%d arrives: %v", e.number, e)
}

// admit moves the border of a queue in the model.
func (h *history) admit(q *queue.Queue[*expected]) {
	for e := q.Admit(); e != nil; e = q.Admit() {
		e.answer = enteredAt(e.position)
	}
	if e := q.Superseded(); e != nil {
		h.takeOut(e, string(serializer.ReasonSuperseded))
	}
}

// takeOut takes a caller out of its queue in the model.
func (h *history) takeOut(e *expected, answer string) {
	e.answer = answer
	q := h.queues[e.arrival.Queue]
	q.Remove(e)
	h.admit(q)
}

func (h *history) leave(e *expected) (what string) {
	h.takeOut(e, "left")
	e.caller.leave()
	return fmt.Sprintf("%d leaves", e.number)
}

func (h *history) evict(e *expected) (what string) {
	h.Helper()
	if err := h.on(h.rand.IntN(2)).Evict(context.Background(), e.arrival.Queue, e.token()); err != nil {
		h.Fatalf("evicting %v: %v", e, err)
	}
	if e.Admitted() {
		h.until(h, "the holder is told", func() bool { return len(e.revoked) > 0 })
	} else {
		h.takeOut(e, string(serializer.ReasonEvicted))
	}
	return fmt.Sprintf("%d is evicted", e.number)
}

func (h *history) setPaused(name string, paused bool) (what string) {
	h.Helper()
	q := h.queues[name]
	do := func(e *serializer.Engine) error { return e.Resume(context.Background(), name) }
	if paused {
		do = func(e *serializer.Engine) error { return e.Pause(context.Background(), name, time.Time{}) }
	}
	if err := do(h.on(h.rand.IntN(2))); err != nil {
		h.Fatalf("pausing or resuming %q: %v", name, err)
	}
	q.SetPaused(paused)
	h.admit(q)
	return fmt.Sprintf("queue %q is paused: %t", name, paused)
}

// compare waits until everything is as the model says.
func (h *history) compare(after string) {
	h.Helper()
	want, got := h.wanted(), ""
	for _, e := range h.engines {
		same := wait.Poll(h.Patience, func() bool {
			// Read before the list: the ticket of a caller that was refused must not be
			// in a list that is read afterwards.
			got = h.answers((*expected).got)
			got += h.listed(e)
			return got == want
		})
		if !same {
			h.Fatalf("%s:\nis       %s\nexpected %s", after, got, want)
		}
	}
}

// wanted describes the callers and the queues in the model.
func (h *history) wanted() string {
	var b strings.Builder
	b.WriteString(h.answers(func(e *expected) string { return e.answer }))
	for _, name := range slices.Sorted(maps.Keys(h.queues)) {
		q := h.queues[name]
		if q.Len() == 0 && !q.Paused() {
			continue
		}
		fmt.Fprintf(&b, "%q, paused %t:", name, q.Paused())
		for e := range q.All() {
			fmt.Fprintf(&b, " %v inside %t,", e.arrival.Client, e.Admitted())
		}
	}
	return b.String()
}

// listed describes the queues, as an engine lists them.
func (h *history) listed(e *serializer.Engine) string {
	h.Helper()
	var b strings.Builder
	for _, q := range h.list(e) {
		fmt.Fprintf(&b, "%q, paused %t:", q.Prefix, q.PausedUntil != nil)
		for _, t := range q.Tickets {
			fmt.Fprintf(&b, " %s inside %t,", t.Client, t.State == serializer.StateInside)
		}
	}
	return b.String()
}

// answers describes what the callers have got.
func (h *history) answers(of func(*expected) string) string {
	var b strings.Builder
	for _, e := range h.all {
		fmt.Fprintf(&b, "%v %s; ", e.arrival.Client, of(e))
	}
	return b.String()
}
