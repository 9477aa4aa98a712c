package redis

import (
	"context"
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
	"github.com/orderly-http/caddy-orderly/serializer/internal/testhandover"
)

// Ten thousand wait. A process that comes later learns of all. They enter in order, or
// their process dies, and all their tickets go.
func TestTenThousandWaiting(t *testing.T) {
	t.Parallel()
	const n = 10000
	s := startServer(t)
	engines := opened(t, 2, s.address)
	holder := enter(t, engines[0])
	var callers []*caller
	for i := range n {
		callers = append(callers, arrive(engines[i%2], 5*time.Minute))
	}
	wait.Until(t, "all wait", func() bool { return s.do("HLEN", "{orderly}:tickets") == int64(n+1) })
	late := join(t, open(t, Options{}, s.address))
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
	slow, fast := opened(t, 1, link.Addr)[0], opened(t, 1, s.address)[0]
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

// How long nobody is inside while others wait, beside a bare write of the same server.
func BenchmarkHandOver(b *testing.B) {
	s := startServer(b, "--appendonly", "yes")
	c := redis.NewClient(&redis.Options{Addr: s.address})
	defer c.Close()
	for _, hold := range []time.Duration{0, time.Millisecond} {
		testhandover.Run(b, fmt.Sprintf("hold=%s/write", hold), 1, hold, func(ctx context.Context, _ int) (func(), error) {
			return func() {}, c.Set(ctx, "key", "value", 0).Err()
		})
		for _, processes := range []int{1, 2, 8} {
			engines := opened(b, processes, s.address)
			testhandover.Run(b, fmt.Sprintf("hold=%s/processes=%d", hold, processes), 8, hold, func(ctx context.Context, i int) (func(), error) {
				return testhandover.Enter(ctx, engines[i%processes], serializer.Arrival{Queue: "a_"})
			})
		}
	}
}

// calls counts the scripts that the server has run.
func calls(t *testing.T, s *server) (n int) {
	t.Helper()
	info, _ := s.do("INFO", "commandstats").(string)
	_, err := fmt.Sscanf(infoValue(info, "cmdstat_evalsha"), "calls=%d", &n)
	must(t, err)
	return n
}
