package test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A process that is cut off must stop before etcd lets others in.
func TestDeadline(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, link := m.Client(t), startRelay(t, m.URL)
	const ttl = 3 * time.Second
	cutOff, other := open(t, etcd.Options{TTL: ttl}, link.url()), open(t, etcd.Options{TTL: ttl}, m.URL)
	revoked := make(chan error, 1)
	a := arrival("a_")
	a.Revoke = func(err error) {
		if len(ticketsOf(t, c, "")) == 0 || len(queueOf(t, other, "a_").Tickets) == 0 {
			t.Error("etcd has ended the lease before the process gave it up")
		}
		revoked <- err
	}
	holder, err := cutOff.Enter(t.Context(), a)
	must(t, err)
	waiting, next := join(t, cutOff, "a_"), join(t, other, "a_")

	link.hold(true)
	start := time.Now()
	wantRevoked(t, revoked, serializer.ErrLost)
	if took := time.Since(start); took > ttl {
		t.Errorf("revoked after %s", took)
	}
	wantRefusal(t, (<-waiting).err, serializer.ReasonLost, serializer.ErrLost)
	_, err = cutOff.Enter(t.Context(), arrivalFor(0, "a_"))
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)
	(<-next).leave(t)
	t.Logf("the next one entered %s after the cut", time.Since(start).Round(time.Millisecond))

	link.hold(false)
	link.cut()
	wait.Until(t, "a newcomer waits for the holder, which has not left", func() bool {
		_, err := cutOff.Enter(t.Context(), arrivalFor(time.Second, "a_"))
		return errors.Is(err, serializer.ErrTimeout)
	})
	holder.Leave()
	enterSoon(t, cutOff, "a_")
	waitUntilEmpty(t, c)
}

// An operator revokes the lease.
func TestLeaseRevoked(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, e := m.Client(t), open(t, etcd.Options{TTL: 4 * time.Second}, m.URL)
	holder, revoked := held(t, e, "a_")
	leases := testetcd.Leases(t, c)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	must(t, second(c.Revoke(t.Context(), leases[0].ID)))
	wantRevoked(t, revoked, serializer.ErrLost)
	holder.Leave()
	enterSoon(t, e, "a_")
	waitUntilEmpty(t, c)
}

// While etcd is unreachable, nobody new enters; once it is back, the queue continues.
func TestRestart(t *testing.T) {
	t.Parallel()
	m := startStandalone(t, "etcd")
	here, there := open(t, etcd.Options{TTL: time.Minute}, m.URL), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	holder := enter(t, here, "a_")
	waiting := join(t, there, "a_")
	m.process.kill()
	holder.Leave()
	late := start(here, "a_")
	select {
	case <-waiting:
		t.Error("entered without etcd")
	case <-late:
		t.Error("took a ticket without etcd")
	case <-time.After(300 * time.Millisecond):
	}
	m.process.start(t)
	(<-waiting).leave(t)
	(<-late).leave(t)
	waitUntilEmpty(t, m.Client(t))
}

// History is compacted away while many wait, and connections break.
func TestCompactionAndLostWatches(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c := m.Client(t)
	links := []*relay{startRelay(t, m.URL), startRelay(t, m.URL)}
	ctx, cancel := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	faults.Go(func() {
		for ctx.Err() == nil {
			if answer, err := c.Get(ctx, "x"); err == nil {
				_, _ = c.Compact(ctx, answer.Header.Revision) // fails where nothing is new
			}
			for _, link := range links {
				link.cut()
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	var all crowd
	for _, link := range links {
		all.comes(open(t, etcd.Options{TTL: time.Minute}, link.url()), 4, 40, 2*time.Millisecond, 0)
	}
	all.wantOrder(t, 320)
	cancel()
	faults.Wait()
	waitUntilEmpty(t, c)
}

// A slow link costs time and nothing else.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	link := startRelay(t, m.URL)
	link.slow(100 * time.Millisecond)
	var all crowd
	for _, url := range []string{link.url(), m.URL} {
		all.comes(open(t, etcd.Options{}, url), 4, 10, 0, 0)
	}
	all.wantOrder(t, 80)
}
