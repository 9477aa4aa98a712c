package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Whatever happens in whatever order, after each step everything is as the
// model says.
func testHistory(s *space) {
	s.Logf("seed %d", s.Seed)
	h := &history{space: s, rand: rand.New(rand.NewPCG(s.Seed, 0))}
	for i := range s.Steps {
		h.step(i)
	}
	for i := s.Steps; ; i++ {
		inside, _ := h.model.numbers()
		if len(inside) == 0 {
			break
		}
		h.leave(inside[0])
		h.compare(fmt.Sprintf("step %d: %d leaves", i, inside[0]))
	}
	if _, waiting := h.model.numbers(); len(waiting) > 0 {
		s.Fatalf("the model is wrong: %v wait behind nobody", waiting)
	}
}

// history is what has happened to an engine and to the model.
type history struct {
	*space
	rand  *rand.Rand
	model model
}

// someRules are the rules of the visitors in random runs.
var someRules = []serializer.Rule{{}, {}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}}

// step makes something happen that is possible now.
func (h *history) step(i int) {
	h.Helper()
	inside, waiting := h.model.numbers()
	all := append(slices.Clone(inside), waiting...)
	var what string
	switch n := h.rand.IntN(10); {
	case n < 3 && len(inside) > 0:
		what = h.leave(pick(h.rand, inside))
	case n == 3 && len(waiting) > 0:
		who := pick(h.rand, waiting)
		what = fmt.Sprintf("%d hangs up", who)
		h.model.finish(who, string(serializer.ReasonGone))
		h.visitors[who].hangUp(errHungUp)
	case n == 4 && len(all) > 0:
		what = h.evictOne(pick(h.rand, all))
	default:
		what = h.arrive()
	}
	h.compare(fmt.Sprintf("step %d: %s", i, what))
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (h *history) arrive() (what string) {
	a := h.ruled(pick(h.rand, someRules))
	text := pick(h.rand, []string{"a_", "a", "a_b_"})
	a.Queue = h.name(text)
	a.MaxWaiting = pick(h.rand, []int{0, 0, 3})
	// All arrivals of a queue agree: one that is to be refused may have a ticket for
	// a moment, which must not supersede another one.
	a.DropOldest = text != "a"
	h.model.arrive(a)
	who := len(h.visitors)
	v := h.start(who, a)
	v.joins()
	return fmt.Sprintf("%d arrives: %v", who, v)
}

func (h *history) leave(who int) (what string) {
	h.model.finish(who, endLeft)
	h.visitors[who].leave()
	return fmt.Sprintf("%d leaves", who)
}

func (h *history) evictOne(who int) (what string) {
	h.Helper()
	v, inside := h.visitors[who], h.model.arrivals[who].inside
	if err := h.evict(h.rand.IntN(2), v.arrival.Queue, v.token()); err != nil {
		h.Fatalf("evicting %v: %v", v, err)
	}
	if inside {
		if len(v.revoked) == 0 && !v.evicted {
			v.expectRevoke(serializer.ErrEvicted)
		}
		v.evicted = true
	} else {
		h.model.finish(who, string(serializer.ReasonEvicted))
	}
	return fmt.Sprintf("%d is evicted", who)
}

// compare waits until everything is as the model says: the lists of all engines,
// and the state of all visitors.
func (h *history) compare(after string) {
	h.Helper()
	want := h.model.String()
	for _, e := range h.engines {
		for deadline := time.Now().Add(h.Patience); ; time.Sleep(200 * time.Microsecond) {
			// Read before the list: the ticket of a visitor that was refused must
			// not be in a list that is read afterwards.
			became := h.become()
			got := h.listed(e) + became
			if got == want {
				break
			}
			if time.Now().After(deadline) {
				h.Fatalf("%s:\nis       %s\nexpected %s", after, got, want)
			}
		}
	}
}

// listed describes the queues, as an engine lists them.
func (h *history) listed(e serializer.Engine) string {
	h.Helper()
	var b strings.Builder
	for _, q := range h.list(e) {
		var tickets []string
		for _, t := range q.Tickets {
			who := slices.IndexFunc(h.visitors, func(v *visitor) bool { return v.arrival.Client.String() == t.Client })
			tickets = append(tickets, ticketText(who, t.State == serializer.StateInside))
		}
		b.WriteString(queueText(q.Prefix, tickets))
	}
	return b.String()
}

// become describes the visitors.
func (h *history) become() string {
	var b strings.Builder
	for i, v := range h.visitors {
		switch refused, _ := errors.AsType[*serializer.Refused](v.outcome()); {
		case refused != nil:
			fmt.Fprintf(&b, "%d %s; ", i, refused.Reason) // its position need not be known
		case v.returned() && !v.left:
			fmt.Fprintf(&b, "%d entered at %d; ", i, v.turn.Position())
		}
	}
	return b.String()
}

// outcome is the error of a visitor whose Enter has returned.
func (v *visitor) outcome() error {
	if !v.returned() {
		return nil
	}
	return v.err
}

// Many visitors come, wait, give up, are evicted and leave at once. The judge looks
// at each that enters; each gets its turn or a refusal that it asked for; and in the
// end nothing is left.
func testCrowd(s *space) {
	s.Logf("seed %d", s.Seed)
	var group sync.WaitGroup
	for i := range 24 {
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
		group.Go(func() {
			for n := range 25 {
				if !s.visit(i+n, r) {
					return
				}
			}
		})
	}
	group.Wait()
	for i, e := range s.engines {
		s.until(fmt.Sprintf("nothing is listed by engine %d", i), func() bool { return len(s.list(e)) == 0 })
	}
}

// visit sends one visitor of a crowd. It reports whether the visit has ended.
func (s *space) visit(i int, r *rand.Rand) bool {
	a := s.ruled(pick(r, someRules))
	a.Queue = s.name(pick(r, []string{"a_", "a_", "b_"}))
	allowed := []error{serializer.ErrEvicted}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	switch r.IntN(10) {
	case 0:
		a.Timeout = time.Duration(1+r.IntN(20)) * time.Millisecond
		allowed = append(allowed, serializer.ErrTimeout)
	case 1:
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(1+r.IntN(20))*time.Millisecond, errHungUp)
		allowed = append(allowed, errHungUp)
	case 2:
		a.MaxWaiting = 1 + r.IntN(8)
		allowed = append(allowed, serializer.ErrFull)
	case 3:
		a.MaxWaiting, a.DropOldest = 1+r.IntN(8), true
		allowed = append(allowed, serializer.ErrSuperseded)
	}
	defer cancel()
	v := s.startIn(ctx, i, a)
	select {
	case <-v.done:
	case <-time.After(s.Patience):
		s.Errorf("%v was forgotten: it got neither its turn nor a refusal within %s", v, s.Patience)
		return false
	}
	if v.err != nil {
		if !slices.ContainsFunc(allowed, func(err error) bool { return errors.Is(v.err, err) }) {
			s.Errorf("%v: %v; expected its turn, or one of %v", v, v.err, allowed)
		}
		return true
	}
	for range r.IntN(3) {
		runtime.Gosched()
	}
	if r.IntN(10) == 0 {
		_ = s.evict(i+r.IntN(2), a.Queue, v.turn.Token()+uint64(r.IntN(2))) // itself, or nobody, or the one behind
	}
	v.leave()
	return true
}
