package test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// answers records when any member answers a plain client, as entries of a crowd.
func (c *crowd) answers(t *testing.T, endpoints []string) {
	for _, endpoint := range endpoints {
		client := (&testetcd.Member{URL: endpoint}).Client(t)
		c.callers.Go(func() {
			for !c.over.Load() {
				time.Sleep(100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				if testlease.Second(client.Put(ctx, "plain", "")) == nil {
					c.note(func() { c.enter(0) })
				}
				cancel()
			}
		})
	}
}

// A member that is stopped says nothing, but its kernel still acknowledges
// data. Bug: everything stood still for 13 seconds, leases were lost, and a
// waiter was refused as evicted, which it was not.
func TestFrozenMember(t *testing.T) {
	t.Parallel()
	t.Run("etcd 3.4", func(t *testing.T) {
		t.Parallel()
		freezeInTurn(t, startDebianTrio(t))
	})
	t.Run("etcd 3.7", func(t *testing.T) {
		t.Parallel()
		freezeInTurn(t, startTrio(t, func(m member) *process { return m.modern(t) }))
	})
}

// etcd may end leases when its old leader wakes up, 3.4 and 3.7 alike. Then the holder
// is revoked, and the next one may enter before the holder has left.
func freezeInTurn(t *testing.T, s *trio) {
	const ttl = 5 * time.Second
	all, cluster := new(crowd), new(crowd)
	var engines []*testlease.Engine
	for range 3 {
		e := open(t, etcd.Options{TTL: ttl}, s.endpoints...)
		engines = append(engines, e)
		all.comes(e, 2, 0, 5*time.Millisecond, 5*time.Millisecond)
	}
	cluster.answers(t, s.endpoints)
	defer cluster.end()
	defer all.end()
	all.more(t, 30, "at first")
	for i, m := range s.members {
		all.note(func() { all.refused, all.overlaps = nil, 0 })
		start, before := time.Now(), testlease.Lost(engines...)
		m.signal(t, syscall.SIGSTOP)
		time.Sleep(ttl + 3*time.Second)
		woken := time.Now()
		frozen := all.gap(start, woken)
		m.signal(t, syscall.SIGCONT)
		all.more(t, 30, "after a member was frozen")
		awake := all.gap(woken, time.Now())
		// A busy machine may keep etcd from electing a leader for longer.
		promised := max(ttl, cluster.gap(start, time.Now())+time.Second) + 2*time.Second
		refused, overlaps := make(map[serializer.Reason]int), 0
		all.note(func() {
			overlaps = all.overlaps
			for _, err := range all.refused {
				refused[serializer.ReasonOf(err)]++
			}
		})
		t.Logf("member %d frozen: longest time without an entry %.2f s, after it %.2f s; refused: %v", i, frozen.Seconds(), awake.Seconds(), refused)
		if frozen > promised || awake > promised {
			t.Errorf("member %d frozen: nobody entered for %s; promised: at most %s", i, max(frozen, awake), promised)
		}
		if refused[serializer.ReasonEvicted] > 0 {
			t.Errorf("member %d frozen: %d refused as evicted", i, refused[serializer.ReasonEvicted])
		}
		if overlaps > 0 && !loseLease(engines, before, ttl) {
			t.Errorf("member %d frozen: two were inside", i)
		}
	}
}

// loseLease reports whether any of the engines loses a lease. An engine whose lease
// etcd has ended learns that from its next keep-alive at the latest.
func loseLease(engines []*testlease.Engine, before int64, ttl time.Duration) bool {
	return wait.Poll(2*ttl, func() bool { return testlease.Lost(engines...) > before })
}
