package redis

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// long is for figures and for faults that take their time.
var long = flag.Bool("long", false, "measure longer")

// Ten thousand wait. A process that comes later learns of all. They enter in order, or
// their process dies, and all their tickets go.
func TestTenThousandWaiting(t *testing.T) {
	t.Parallel()
	const n = 10000
	s := startServer(t)
	engines := opened(t, 2, s.address)
	holder := enter(t, engines[0])
	var callers []*caller
	start := time.Now()
	for i := range n {
		callers = append(callers, arrive(engines[i%2], 5*time.Minute))
	}
	wait.Until(t, "all wait", func() bool { return s.do("HLEN", "{orderly}:tickets") == int64(n+1) })
	t.Logf("%d tickets after %.2f s", n, time.Since(start).Seconds())
	start = time.Now()
	late := join(t, open(t, Options{}, s.address))
	t.Logf("a process that comes later has a ticket after %.2f s", time.Since(start).Seconds())
	start = time.Now()
	holder.turn.Leave()
	var tokens []uint64
	for _, c := range callers {
		go func() {
			if <-c.done; c.err == nil {
				c.turn.Leave()
			}
		}()
	}
	for _, c := range append(callers, late) {
		<-c.done
		must(t, c.err)
		tokens = append(tokens, c.turn.Token())
	}
	t.Logf("all have entered after %.2f s", time.Since(start).Seconds())
	slices.SortFunc(callers, func(a, b *caller) int { return a.entered.Compare(b.entered) })
	if slices.Sort(tokens); len(slices.Compact(tokens)) != n+1 || late.turn.Token() != tokens[n] || late.turn.Position() != n+1 {
		t.Errorf("%d tokens; the last one has %d of %d, %d ahead", len(tokens), late.turn.Token(), tokens[n], late.turn.Position())
	}
}

// Bug: when a pause began, each holder was marked in a request of its own. With many and a slow
// link, they kept the renewal from a connection, and the lease was lost.
func TestPauseWithManyInside(t *testing.T) {
	t.Parallel()
	const n = 400
	s := startServer(t)
	engines := opened(t, 2, s.address)
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			_, err := engines[0].Enter(context.Background(), serializer.Arrival{Queue: "a_", Rule: serializer.Rule{Limit: n}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	before := calls(t, s)
	must(t, engines[1].Pause(context.Background(), "a_", serializer.Forever))
	wait.Until(t, "all are marked", func() bool {
		values := fmt.Sprint(s.do("HVALS", "{orderly}:tickets"))
		return strings.Count(values, " i ") == n
	})
	if requests := calls(t, s) - before; requests > n/2 {
		t.Errorf("%d requests", requests)
	}
}

// Bug: with slow answers, lists kept the renewal from a connection, and the lease was lost: each was a
// request of its own, and nothing bounded them. A list shares a request, but none that was sent before.
func TestManyLists(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	link := startRelay(t, s.address)
	slow, fast := opened(t, 1, link.Addr().String())[0], opened(t, 1, s.address)[0]
	holder := enter(t, slow)
	link.slow(200 * time.Millisecond)
	before, end := calls(t, s), time.Now().Add(2*ttl)
	var lists atomic.Int64
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			for time.Now().Before(end) {
				_ = queues(slow) // fails once the lease is lost
				lists.Add(1)
			}
		})
	}
	for waiting := 1; len(holder.revoked) == 0 && time.Now().Before(end); waiting++ {
		join(t, fast)
		list, _ := slow.Queues(t.Context())
		for _, q := range list {
			if q.Waiting < waiting {
				t.Errorf("a list has %d that wait; expected %d", q.Waiting, waiting)
			}
		}
	}
	group.Wait()
	if len(holder.revoked) > 0 {
		t.Errorf("revoked: %v", <-holder.revoked)
	}
	if requests := calls(t, s) - before; requests > int(lists.Load())/4 {
		t.Errorf("%d requests for %d lists", requests, lists.Load())
	}
}

// figures are the results of a measurement.
func figures(times []time.Duration, total time.Duration) string {
	if len(times) == 0 {
		return "none"
	}
	slices.Sort(times)
	return fmt.Sprintf("%6d, median %6d µs, 99th percentile %6d µs, %6.0f/s", len(times),
		times[len(times)/2].Microseconds(), times[len(times)*99/100].Microseconds(), float64(len(times))/total.Seconds())
}

// TestHandOver prints how long nobody is inside while others wait, beside a bare write of
// the same server in the same run, and how many commands a turn takes.
func TestHandOver(t *testing.T) {
	d := 300 * time.Millisecond
	if *long {
		d = 10 * time.Second
	}
	s := startServer(t, "--appendonly", "yes")
	for _, stay := range []time.Duration{0, time.Millisecond} {
		t.Logf("%-45s %s", fmt.Sprintf("one write, each after %s", stay), writes(t, s, stay, d))
		for _, c := range []struct{ processes, callers int }{{1, 8}, {2, 2}, {2, 8}, {8, 8}} {
			engines := opened(t, c.processes, s.address)
			before := calls(t, s)
			times, total := handOvers(t, engines, c.callers, stay, d)
			t.Logf("%-45s %s; %.2f scripts a turn", fmt.Sprintf("%d callers in %d processes, %s inside", c.callers, c.processes, stay),
				figures(times, total), float64(calls(t, s)-before)/float64(len(times)))
			for _, e := range engines {
				must(t, e.Close())
			}
		}
	}
}

// writes measures single writes.
func writes(t *testing.T, s *server, pause, d time.Duration) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.address})
	defer c.Close()
	var times []time.Duration
	start := time.Now()
	for time.Since(start) < d {
		time.Sleep(pause)
		before := time.Now()
		must(t, c.Set(context.Background(), "key", "value", 0).Err())
		times = append(times, time.Since(before))
	}
	return figures(times, time.Since(start))
}

// calls counts the scripts that the server has run.
func calls(t *testing.T, s *server) (n int) {
	t.Helper()
	info, _ := s.do("INFO", "commandstats").(string)
	_, err := fmt.Sscanf(infoValue(info, "cmdstat_evalsha"), "calls=%d", &n)
	must(t, err)
	return n
}

// handOvers has callers take turns, and measures the time between two.
func handOvers(t *testing.T, engines []*serializer.Engine, callers int, stay, d time.Duration) (times []time.Duration, total time.Duration) {
	var inside sync.Mutex
	var left time.Time
	var group sync.WaitGroup
	start := time.Now()
	for i := range callers {
		group.Go(func() {
			for time.Since(start) < d {
				turn, err := engines[i%len(engines)].Enter(context.Background(), serializer.Arrival{Queue: "a_"})
				if err != nil {
					t.Error(err)
					return
				}
				if !inside.TryLock() {
					t.Error("two are inside")
					return
				}
				if !left.IsZero() {
					times = append(times, time.Since(left))
				}
				time.Sleep(stay)
				left = time.Now()
				inside.Unlock()
				turn.Leave()
			}
		})
	}
	group.Wait()
	return times, time.Since(start)
}
