package test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// An operator revokes the lease.
func TestLeaseRevoked(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, e := m.Client(t), open(t, etcd.Options{TTL: 4 * time.Second}, m.URL)
	holder := testlease.Enter(t, e)
	leases := testetcd.Leases(t, c)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	testlease.Must(t, testlease.Second(c.Revoke(t.Context(), leases[0].ID)))
	holder.WantRevoked(t, serializer.ErrLost)
	holder.Turn.Leave()
	testlease.EnterSoon(t, e)
	waitUntilEmpty(t, c)
}

// History is compacted away while many wait, and connections break.
func TestCompactionAndLostWatches(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c := m.Client(t)
	links := []link{startLink(t, m.URL), startLink(t, m.URL)}
	ctx, cancel := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	faults.Go(func() {
		for ctx.Err() == nil {
			if answer, err := c.Get(ctx, "x"); err == nil {
				_, _ = c.Compact(ctx, answer.Header.Revision) // fails where nothing is new
			}
			for _, link := range links {
				link.Cut()
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
	link := startLink(t, m.URL)
	link.Slow(100 * time.Millisecond)
	var all crowd
	for _, url := range []string{link.url(), m.URL} {
		all.comes(open(t, etcd.Options{}, url), 4, 10, 0, 0)
	}
	all.wantOrder(t, 80)
}
