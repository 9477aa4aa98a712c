package testlease

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var whole = flag.Bool("silences", false, "measure entries after long and short silences of servers, not just one")

// Silence is one of servers.
type Silence struct {
	TTL, Length time.Duration
	Processes   int
}

// Silences are a long one, or with -silences all that the documents have figures of.
func Silences(ttl time.Duration) (silences []Silence) {
	if !*whole {
		long := 3*ttl + 2*time.Second
		return []Silence{{ttl, long, 1}, {ttl, long, 3}}
	}
	for _, ttl := range []time.Duration{3 * time.Second, 10 * time.Second} {
		for _, length := range []time.Duration{3 * time.Second, 10 * time.Second, 40 * time.Second} {
			silences = append(silences, Silence{ttl, length, 1}, Silence{ttl, length, 3})
		}
	}
	return silences
}

// crowd is callers of engines that share a queue, one to each.
type crowd struct {
	testing.TB
	over     atomic.Bool
	inside   atomic.Int32
	mu       sync.Mutex
	resumed  time.Time
	sinceAll []time.Duration // from then on to the first entry by each engine; zero before
}

// Run silences servers while a caller is inside. resume returns when they answer again. From
// then on, the next one has to enter before limit has passed. Never are two inside.
func (c Silence) Run(t testing.TB, open func() *Engine, silence, resume func(), limit time.Duration) {
	t.Helper()
	all, engines := &crowd{TB: t, sinceAll: make([]time.Duration, c.Processes)}, []*Engine(nil)
	for range c.Processes {
		engines = append(engines, open())
		wait.Eventually(t, "an arrival enters", func() error { return all.enter(engines[len(engines)-1], func() {}) })
	}
	entered, left, ended := make(chan bool), make(chan error, 1), make(chan bool)
	end := sync.OnceFunc(func() { close(ended) })
	go func() {
		left <- all.enterAs(serializer.Arrival{Queue: Queue, Revoke: func(error) { end() }}, engines[0], func() {
			close(entered)
			<-ended
		})
	}()
	<-entered
	silence()
	var callers sync.WaitGroup
	for i, e := range engines {
		callers.Go(func() { all.comeAgain(i, e) })
	}
	time.Sleep(c.Length)
	all.mu.Lock()
	all.resumed = time.Now()
	all.mu.Unlock()
	resume()
	answered := time.Since(all.resumed)
	if c.Length < c.TTL/2 {
		end() // the lease outlasts the silence
	}
	wait.Until(t, "all have entered", func() bool { first, last := all.took(); return first > 0 && last > 0 })
	all.over.Store(true)
	callers.Wait()
	first, last := all.took()
	t.Logf("ttl %s, silent for %s, %d processes: the servers answer after %.2f s; the first entry after %.2f s, by each process after %.2f s",
		c.TTL, c.Length, c.Processes, answered.Seconds(), first.Seconds(), last.Seconds())
	if first > answered+limit {
		t.Errorf("the first entry %s after the servers answered; expected at most %s", first-answered, limit)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

func (c *crowd) enter(e *Engine, hold func()) error {
	return c.enterAs(serializer.Arrival{Queue: Queue, Timeout: wait.Patience}, e, hold)
}

func (c *crowd) enterAs(a serializer.Arrival, e *Engine, hold func()) error {
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		return err
	}
	if c.inside.Add(1) > 1 {
		c.Error("two are inside")
	}
	hold()
	c.inside.Add(-1)
	turn.Leave()
	return nil
}

// comeAgain keeps one caller coming to an engine.
func (c *crowd) comeAgain(i int, e *Engine) {
	for !c.over.Load() {
		_ = c.enter(e, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.sinceAll[i] == 0 && !c.resumed.IsZero() {
				c.sinceAll[i] = time.Since(c.resumed)
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
}

// took is how long it took from the end of the silence to the first entry, and to that of the
// last engine; zero before.
func (c *crowd) took() (first, last time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = time.Hour
	for _, took := range c.sinceAll {
		if took == 0 {
			return 0, 0
		}
		first, last = min(first, took), max(last, took)
	}
	return first, last
}
