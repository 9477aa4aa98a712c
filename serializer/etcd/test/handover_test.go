package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// handOvers measures how long the place behind a queue is empty between two
// visitors, while others wait all the time.
type handOvers struct {
	overlaps atomic.Int64
	mu       sync.Mutex
	left     time.Time
	times    []time.Duration
	start    time.Time
	stop     time.Time
}

// visit is what a caller does inside: the lock detects overlaps.
func (h *handOvers) visit(hold time.Duration) {
	now := time.Now()
	if !h.mu.TryLock() {
		h.overlaps.Add(1)
		return
	}
	defer h.mu.Unlock()
	if !h.left.IsZero() {
		h.times = append(h.times, now.Sub(h.left))
	}
	time.Sleep(hold)
	h.left = time.Now()
	h.stop = h.left
}

// figures are the results of a measurement.
type figures struct {
	n           int
	median, p99 time.Duration
	rate        float64 // a second
}

func figuresOf(times []time.Duration, total time.Duration) figures {
	slices.Sort(times)
	return figures{len(times), times[len(times)/2], times[len(times)*99/100], float64(len(times)) / total.Seconds()}
}

func (f figures) String() string {
	return fmt.Sprintf("%6d, median %9s, 99th percentile %9s, %6.0f/s", f.n, f.median.Round(time.Microsecond), f.p99.Round(time.Microsecond), f.rate)
}

// measure has clients visit again and again, for a time.
func measure(clients int, d time.Duration, visit func(client int, ctx context.Context, h *handOvers) error) (figures, error) {
	h := &handOvers{start: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	failures := make(chan error, clients+1)
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
	if n := h.overlaps.Load(); n > 0 {
		failures <- fmt.Errorf("%d overlaps", n)
	}
	close(failures)
	return figuresOf(h.times, h.stop.Sub(h.start)), <-failures
}

// measurePuts measures single writes, with a pause before each. A hand-over
// comes after a pause, too, and a machine that has to wake up for it is slower
// than a busy one.
func measurePuts(t *testing.T, c *clientv3.Client, pause, d time.Duration) figures {
	t.Helper()
	var times []time.Duration
	start := time.Now()
	for time.Since(start) < d {
		time.Sleep(pause)
		before := time.Now()
		must(t, second(c.Put(t.Context(), "put/key", "value")))
		times = append(times, time.Since(before))
	}
	return figuresOf(times, time.Since(start))
}

// measureMutex measures etcd's own lock, which needs a session for each client.
func measureMutex(t *testing.T, m *testetcd.Member, clients int, hold, d time.Duration) figures {
	t.Helper()
	locks := make([]*concurrency.Mutex, clients)
	for i := range locks {
		session, err := concurrency.NewSession(m.Client(t))
		must(t, err)
		defer session.Close()
		locks[i] = concurrency.NewMutex(session, "mutex/")
	}
	f, err := measure(clients, d, func(i int, ctx context.Context, h *handOvers) error {
		if err := locks[i].Lock(ctx); err != nil {
			return err
		}
		h.visit(hold)
		return locks[i].Unlock(context.Background())
	})
	must(t, err)
	return f
}

func measureEngines(t *testing.T, m *testetcd.Member, engines, clients int, hold, d time.Duration) figures {
	t.Helper()
	es := make([]*engine, engines)
	for i := range es {
		es[i] = open(t, etcd.Options{}, m.URL)
		enter(t, es[i], "warm").Leave()
		defer es[i].Close()
	}
	f, err := measure(clients, d, func(i int, ctx context.Context, h *handOvers) error {
		turn, err := es[i%engines].Enter(ctx, arrival("a_"))
		if err != nil {
			return err
		}
		h.visit(hold)
		turn.Leave()
		return nil
	})
	must(t, err)
	return f
}

// TestHandOver prints figures beside those of a put and of concurrency.Mutex, all
// from one run, on one member whose disk is this machine's. Without a hold, the
// machine is busy with tickets, and the rate is what counts. If each client holds
// for a while, the others have their tickets and wait. Then the holds bound the
// rate, and docs/cluster.md says which row is slower than a mutex.
func TestHandOver(t *testing.T) {
	d := 200 * time.Millisecond
	if *long {
		d = 10 * time.Second
	}
	m := testetcd.Start(t)
	for _, hold := range []time.Duration{0, 5 * time.Millisecond} {
		for _, clients := range []int{2, 8, 32} {
			t.Run(fmt.Sprintf("%d clients hold %s", clients, hold), func(t *testing.T) { compareHandOvers(t, m, clients, hold, d) })
		}
	}
}

func compareHandOvers(t *testing.T, m *testetcd.Member, clients int, hold, d time.Duration) {
	put := measurePuts(t, m.Client(t), hold, d)
	t.Logf("one put                       %s", put)
	mutex := measureMutex(t, m, clients, hold, d)
	t.Logf("concurrency.Mutex             %s", mutex)
	for _, engines := range slices.Compact([]int{1, min(8, clients), clients}) {
		f := measureEngines(t, m, engines, clients, hold, d)
		t.Logf("etcd engine in %2d processes   %s; median %.2f puts, 99th percentile %.1f medians", engines, f,
			f.median.Seconds()/put.median.Seconds(), f.p99.Seconds()/f.median.Seconds())
		if *long && hold == 0 && f.rate <= mutex.rate {
			t.Errorf("%d clients of %d processes: fewer hand-overs than concurrency.Mutex", clients, engines)
		}
	}
}
