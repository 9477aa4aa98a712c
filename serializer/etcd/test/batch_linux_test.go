package test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

// The marks of forgotten queues are deleted as a range. Bug: if a queue was used
// again before that, the deletion of its next ticket, which puts a mark, went
// into the same request. etcd refuses a put in a deleted range, so the request
// was repeated for ever, and nothing more was deleted.
func TestForgottenQueueUsedAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	const queues = 50
	m := startStandalone(t)
	here, there := open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
	name := func(i int) string { return fmt.Sprintf("u%d", i) }

	// These callers keep all requests for deletions under way all the time.
	ctx, cancel := context.WithCancel(context.Background())
	var busy, again sync.WaitGroup
	for i := range 16 {
		busy.Go(func() {
			for ctx.Err() == nil {
				if turn, err := here.Enter(ctx, arrival(fmt.Sprintf("busy%d", i))); err == nil {
					turn.Leave()
				}
			}
		})
	}
	defer busy.Wait()
	defer cancel()
	for i := range queues {
		enter(t, here, arrival(name(i))).Leave()
	}
	time.Sleep(9800 * time.Millisecond) // a queue is forgotten after ten seconds
	for i := range queues {
		again.Go(func() {
			time.Sleep(1700 * time.Millisecond)
			if turn, err := here.Enter(context.Background(), arrival(name(i))); err == nil {
				turn.Leave()
			}
		})
	}
	m.freeze(t, 2500*time.Millisecond)
	again.Wait()
	var refused atomic.Int64
	var group sync.WaitGroup
	for i := range queues {
		group.Go(func() {
			a := arrival(name(i))
			a.Timeout = 10 * time.Second
			turn, err := there.Enter(context.Background(), a)
			if err != nil {
				refused.Add(1)
				return
			}
			turn.Leave()
		})
	}
	group.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of %d were refused on another machine: the tickets before them are not deleted", n, queues)
	}
}
