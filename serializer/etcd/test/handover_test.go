package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// figures are the results of a measurement.
type figures struct {
	n           int
	median, p99 time.Duration
	rate        float64 // a second
}

func figuresOf(times []time.Duration, total time.Duration) figures {
	if len(times) == 0 { // the machine is busy
		return figures{}
	}
	slices.Sort(times)
	return figures{len(times), times[len(times)/2], times[len(times)*99/100], float64(len(times)) / total.Seconds()}
}

func (f figures) String() string {
	return fmt.Sprintf("%6d, median %9s, 99th percentile %9s, %6.0f/s", f.n, f.median.Round(time.Microsecond), f.p99.Round(time.Microsecond), f.rate)
}

// measure has clients hold something again and again, for a time. It measures how long
// nobody has it between two of them. take returns how to give it back.
func measure(t *testing.T, clients int, hold, d time.Duration, take func(ctx context.Context, client int) (func(), error)) figures {
	t.Helper()
	var inside sync.Mutex
	var left time.Time
	var times []time.Duration
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	start := time.Now()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				leave, err := take(ctx, i)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				now := time.Now()
				if !inside.TryLock() {
					t.Error("two are inside")
				} else {
					if !left.IsZero() {
						times = append(times, now.Sub(left))
					}
					time.Sleep(hold)
					left = time.Now()
					inside.Unlock()
				}
				leave()
			}
		})
	}
	group.Wait()
	return figuresOf(times, left.Sub(start))
}

// measurePuts measures single writes, with a pause before each. A hand-over
// comes after a pause, too, and a machine that has to wake up for it is slower
// than a busy one.
func measurePuts(t *testing.T, m *testetcd.Member, pause, d time.Duration) figures {
	t.Helper()
	c := m.Client(t)
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

// TestHandOver prints figures beside those of a put and of concurrency.Mutex, all
// from one run, on one member whose disk is this machine's. Without a hold, the
// machine is busy with tickets, and the rate is what counts. If each client holds
// for a while, the others have their tickets and wait. Then the holds bound the
// rate, and docs/cluster.md says which row is slower than a mutex.
func TestHandOver(t *testing.T) {
	d, most := 200*time.Millisecond, 8
	if *long {
		d, most = 10*time.Second, 32
	}
	m := testetcd.Start(t)
	for _, hold := range []time.Duration{0, 5 * time.Millisecond} {
		for clients := 2; clients <= most; clients *= 4 {
			t.Run(fmt.Sprintf("%d clients hold %s", clients, hold), func(t *testing.T) { compareHandOvers(t, m, clients, hold, d) })
		}
	}
}

func compareHandOvers(t *testing.T, m *testetcd.Member, clients int, hold, d time.Duration) {
	put := measurePuts(t, m, hold, d)
	t.Logf("one put                       %s", put)
	locks := make([]*concurrency.Mutex, clients) // each needs a session of its own
	for i := range locks {
		session, err := concurrency.NewSession(m.Client(t))
		must(t, err)
		defer session.Close()
		locks[i] = concurrency.NewMutex(session, "mutex/")
	}
	mutex := measure(t, clients, hold, d, func(ctx context.Context, i int) (func(), error) {
		return func() { _ = locks[i].Unlock(context.Background()) }, locks[i].Lock(ctx)
	})
	t.Logf("concurrency.Mutex             %s", mutex)
	for _, n := range slices.Compact([]int{1, min(8, clients), clients}) {
		var engines []*engine
		for range n {
			e := open(t, etcd.Options{}, m.URL)
			enter(t, e, "warm").Leave()
			engines = append(engines, e)
		}
		f := measure(t, clients, hold, d, func(ctx context.Context, i int) (func(), error) {
			turn, err := engines[i%n].Enter(ctx, arrival("a_"))
			if err != nil {
				return nil, err
			}
			return turn.Leave, nil
		})
		t.Logf("etcd engine in %2d processes   %s; median %.2f puts, 99th percentile %.1f medians", n, f,
			f.median.Seconds()/put.median.Seconds(), f.p99.Seconds()/f.median.Seconds())
		if *long && hold == 0 && f.rate <= mutex.rate {
			t.Errorf("%d clients of %d processes: fewer hand-overs than concurrency.Mutex", clients, n)
		}
		for _, e := range engines {
			must(t, e.Close())
		}
	}
}
