package testlease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Clients take turns in a queue again and again, until End. Their history says who was inside.
type Clients struct {
	*History

	group sync.WaitGroup
	over  atomic.Bool

	mu      sync.Mutex
	refused []error
}

// Come has n clients of each engine come to a queue.
func Come(queue string, n int, engines ...*serializer.Engine) *Clients {
	return come(serializer.Arrival{Queue: queue}, n, engines)
}

// ComeToSlots is Come for a queue with slots.
func ComeToSlots(queue string, slots []string, n int, engines ...*serializer.Engine) *Clients {
	rule := serializer.Rule{Limit: len(slots)}
	return come(serializer.Arrival{Queue: queue, Rule: rule, Slots: func() []string { return slots }}, n, engines)
}

func come(a serializer.Arrival, n int, engines []*serializer.Engine) *Clients {
	c := &Clients{History: NewHistory()}
	a.Timeout = 30 * time.Second
	for _, e := range engines {
		for range n {
			c.group.Go(func() {
				for !c.over.Load() {
					c.takeTurn(e, a)
				}
			})
		}
	}
	return c
}

// End waits until all have left, and returns the refusals.
func (c *Clients) End() (refused []error) {
	c.over.Store(true)
	c.group.Wait()
	return c.refused
}

// takeTurn enters and leaves. The hold ends when its turn is revoked.
func (c *Clients) takeTurn(e *serializer.Engine, a serializer.Arrival) {
	hold := c.Asks()
	end := func() { c.Leave(hold) }
	a.Revoke = func(error) { end() }
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		c.mu.Lock()
		c.refused = append(c.refused, err)
		c.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
		return
	}
	c.Enter(hold, turn.Token(), turn.Slot())
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	end()
	turn.Leave()
}

// Crowd has n callers of two processes wait, and one of a process that comes later. Each of the n comes
// again when it leaves. All get their turns, in order. tickets counts those of the server. The leases should
// be long: a busy machine may need a minute.
func Crowd(t *testing.T, open func() *serializer.Engine, tickets func() int, n int) {
	t.Helper()
	engines := []*serializer.Engine{open(), open()}
	for _, e := range engines {
		EnterSoon(t, e)
	}
	var turns sync.WaitGroup
	var mu sync.Mutex
	var tokens []uint64
	var come func(e *serializer.Engine, times int)
	come = func(e *serializer.Engine, times int) {
		e.Join(Arrival(Queue, 0), func(turn serializer.Turn, err error) {
			defer turns.Done()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			tokens = append(tokens, turn.Token())
			mu.Unlock()
			turn.Leave()
			if times > 1 {
				come(e, times-1)
			}
		})
	}
	holder, start := Enter(t, engines[0]), time.Now()
	turns.Add(2 * n)
	for i := range n {
		come(engines[i%2], 2)
	}
	wait.Until(t, "all wait", func() bool { return tickets() == n+1 })
	joined := time.Since(start)
	late := Join(t, open(), Arrival(Queue, 0))
	learned := time.Since(start) - joined
	holder.Turn.Leave()
	<-late.over
	late.Wait(t).Leave()
	turns.Wait()
	t.Logf("%d have joined in %s; a process that came later had a ticket after %s; all had their turns in another %s",
		n, joined, learned, time.Since(start)-joined-learned)
	if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != 2*n {
		t.Errorf("%d turns of %d, in order: %t", len(tokens), 2*n, slices.IsSorted(tokens))
	}
	if late.Turn.Token() <= tokens[n-1] || late.Turn.Token() >= tokens[n] || late.Turn.Position() != n+1 {
		t.Errorf("the last one has %d between %d and %d, and position %d", late.Turn.Token(), tokens[n-1], tokens[n], late.Turn.Position())
	}
}

// HandOver measures for how long nobody is inside while others wait: 8 clients, of one process or
// several. Each holds for a millisecond on average.
func HandOver(b *testing.B, open func() *serializer.Engine) {
	for _, processes := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			var engines []*serializer.Engine
			for range processes {
				engines = append(engines, open())
			}
			b.ResetTimer()
			clients := Come(Queue, 8/processes, engines...)
			wait.Until(b, "all had turns", func() bool { return clients.Len() > b.N })
			clients.End()
			gaps := slices.Sorted(slices.Values(clients.Gaps()))
			b.ReportMetric(float64(gaps[len(gaps)/2])/float64(time.Microsecond), "median-µs")
			b.ReportMetric(float64(gaps[len(gaps)*99/100])/float64(time.Microsecond), "p99-µs")
		})
	}
}
