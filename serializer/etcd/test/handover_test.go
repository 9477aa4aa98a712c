package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/orderly-http/caddy-orderly/serializer/etcd/engine"
)

// handOvers measures how long the place behind a queue is empty between two
// visitors, while others wait all the time.
type handOvers struct {
	mu    sync.Mutex
	left  time.Time
	times []time.Duration
	start time.Time
	stop  time.Time
}

func (h *handOvers) enter() {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.left.IsZero() {
		h.times = append(h.times, now.Sub(h.left))
	}
	h.stop = now
}

func (h *handOvers) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = time.Now()
}

// figures are what a measurement comes to.
type figures struct {
	n           int
	median, p99 time.Duration
	rate        float64 // a second
}

func (h *handOvers) figures() figures { return figuresOf(h.times, h.stop.Sub(h.start)) }

func figuresOf(times []time.Duration, total time.Duration) figures {
	if len(times) == 0 {
		return figures{}
	}
	slices.Sort(times)
	return figures{len(times), times[len(times)/2], times[len(times)*99/100], float64(len(times)) / total.Seconds()}
}

func (f figures) String() string {
	return fmt.Sprintf("%6d, median %9s, 99th percentile %9s, %6.0f/s", f.n, f.median.Round(time.Microsecond), f.p99.Round(time.Microsecond), f.rate)
}

// measure lets clients visit, one after the other, for a time.
func measure(clients int, d time.Duration, visit func(client int, ctx context.Context, h *handOvers) error) (figures, error) {
	h := &handOvers{start: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	failures := make(chan error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := visit(i, ctx, h); err != nil && ctx.Err() == nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return h.figures(), <-failures
}

func measurePuts(t *testing.T, c *clientv3.Client, d time.Duration) figures {
	t.Helper()
	var times []time.Duration
	start := time.Now()
	for time.Since(start) < d {
		before := time.Now()
		if _, err := c.Put(context.Background(), "put/key", "value"); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(before))
	}
	return figuresOf(times, time.Since(start))
}

// measureMutex is etcd's own lock, with a session for each client, as it has to
// be.
func measureMutex(t *testing.T, m *member, clients int, d time.Duration) figures {
	t.Helper()
	locks := make([]*concurrency.Mutex, clients)
	for i := range locks {
		session, err := concurrency.NewSession(m.client(t))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		locks[i] = concurrency.NewMutex(session, "mutex/")
	}
	f, err := measure(clients, d, func(i int, ctx context.Context, h *handOvers) error {
		if err := locks[i].Lock(ctx); err != nil {
			return err
		}
		h.enter()
		h.leave()
		return locks[i].Unlock(context.Background())
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func measureEngines(t *testing.T, m *member, engines, clients int, d time.Duration) figures {
	t.Helper()
	es := make([]*engine.Engine, engines)
	for i := range es {
		es[i] = open(t, engine.Options{}, m.url)
		enter(t, es[i], arrival("warm")).Leave()
		defer es[i].Close()
	}
	f, err := measure(clients, d, func(i int, ctx context.Context, h *handOvers) error {
		turn, err := es[i%engines].Enter(ctx, arrival("a_"))
		if err != nil {
			return err
		}
		h.enter()
		h.leave()
		turn.Leave()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestHandOver prints figures beside a put and beside concurrency.Mutex, all of
// one run, on one member whose disk is this machine's. Nobody stays inside, so
// this is the hand-over and nothing else.
func TestHandOver(t *testing.T) {
	d := time.Second
	if *long {
		d = 10 * time.Second
	}
	m := startEtcd(t)
	put := measurePuts(t, m.client(t), d)
	t.Logf("put, one client                   %s", put)
	for _, clients := range []int{8, 32} {
		mutex := measureMutex(t, m, clients, d)
		t.Logf("%2d clients, concurrency.Mutex     %s", clients, mutex)
		for _, engines := range []int{1, 2, 8, clients} {
			f := measureEngines(t, m, engines, clients, d)
			t.Logf("%2d clients of %2d processes        %s; median %.2f puts, 99th percentile %.1f medians", clients, engines, f,
				f.median.Seconds()/put.median.Seconds(), f.p99.Seconds()/f.median.Seconds())
			if f.rate <= mutex.rate {
				t.Errorf("%d clients of %d processes: fewer hand-overs than concurrency.Mutex", clients, engines)
			}
		}
	}
}
