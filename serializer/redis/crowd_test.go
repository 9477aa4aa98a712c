package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

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
	testlease.Must(t, engines[1].Pause(context.Background(), "a_", serializer.Forever))
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
	link := testrelay.Start(t, s.address)
	slow, fast := opened(t, 1, link.Addr)[0], opened(t, 1, s.address)[0]
	holder := testlease.Enter(t, slow)
	link.Slow(200 * time.Millisecond)
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
	for waiting := 1; len(holder.Revoked) == 0 && time.Now().Before(end); waiting++ {
		testlease.Join(t, fast)
		list, _ := slow.Queues(t.Context())
		for _, q := range list {
			if q.Waiting < waiting {
				t.Errorf("a list has %d that wait; expected %d", q.Waiting, waiting)
			}
		}
	}
	group.Wait()
	holder.WantHeld(t)
	if requests := calls(t, s) - before; requests > int(lists.Load())/4 {
		t.Errorf("%d requests for %d lists", requests, lists.Load())
	}
}

// calls counts the scripts that the server has run.
func calls(t *testing.T, s *server) (n int) {
	t.Helper()
	info, _ := s.do("INFO", "commandstats").(string)
	_, err := fmt.Sscanf(infoValue(info, "cmdstat_evalsha"), "calls=%d", &n)
	testlease.Must(t, err)
	return n
}

func BenchmarkHandOver(b *testing.B) {
	s := startServer(b, "--appendonly", "yes")
	testlease.HandOver(b, func() *serializer.Engine { return opened(b, 1, s.address)[0] })
}
