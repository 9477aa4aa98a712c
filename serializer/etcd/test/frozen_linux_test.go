package test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// entries records when somebody entered, and why somebody was refused.
type entries struct {
	mu      sync.Mutex
	inside  int
	overlap bool
	times   []time.Time
	refused map[serializer.Reason]int
}

func (n *entries) visit(e *engine) {
	a := arrival("a_")
	a.Timeout = time.Minute
	turn, err := e.Enter(context.Background(), a)
	n.mu.Lock()
	if err != nil {
		var refused *serializer.Refused
		if errors.As(err, &refused) {
			n.refused[refused.Reason]++
		}
		n.mu.Unlock()
		return
	}
	n.inside++
	n.overlap = n.overlap || n.inside > 1
	n.times = append(n.times, time.Now())
	n.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	n.mu.Lock()
	n.inside--
	n.mu.Unlock()
	turn.Leave()
}

// write records when a member answers a plain client.
func (n *entries) write(t *testing.T, endpoint string, stop <-chan struct{}) {
	c := (&testetcd.Member{URL: endpoint}).Client(t)
	for {
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		if _, err := c.Put(ctx, "plain", ""); err == nil {
			n.mu.Lock()
			n.times = append(n.times, time.Now())
			n.mu.Unlock()
		}
		cancel()
	}
}

// since counts entries.
func (n *entries) since(start time.Time) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range n.times {
		if at.After(start) {
			count++
		}
	}
	return count
}

// gap is the longest time without an entry.
func (n *entries) gap(start, end time.Time) (gap time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range append(slices.Clone(n.times), end) {
		if at.After(start) && !at.After(end) {
			gap = max(gap, at.Sub(start))
			start = at
		}
	}
	return gap
}

// A member that is stopped says nothing, but its kernel still acknowledges
// data. Bug: everything stood still for 13 seconds, leases were lost, and a
// waiter was refused as evicted, which it was not.
func TestFrozenMember(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	modern := filepath.Join(dir, "etcdserver")
	run(t, "go", "build", "-o", modern, "./etcdserver")
	for name, start := range map[string]func(*testing.T) *trio{
		"etcd 3.4": func(t *testing.T) *trio {
			return startDebianTrio(t)
		},
		"etcd 3.7": func(t *testing.T) *trio {
			return startTrio(t, func(m member) *process { return m.modern(modern) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			freezeInTurn(t, start(t))
		})
	}
}

// etcd may end leases when its old leader wakes up, 3.4 and 3.7 alike. Then the holder
// is revoked, and the next one may enter before the holder has left.
func freezeInTurn(t *testing.T, s *trio) {
	const ttl = 5 * time.Second
	n := &entries{refused: make(map[serializer.Reason]int)}
	var group sync.WaitGroup
	stop := make(chan struct{})
	var engines []*engine
	for range 3 {
		e := open(t, etcd.Options{TTL: ttl}, s.endpoints...)
		engines = append(engines, e)
		for range 2 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
						n.visit(e)
					}
				}
			})
		}
	}
	cluster := new(entries)
	for _, endpoint := range s.endpoints {
		group.Go(func() { cluster.write(t, endpoint, stop) })
	}
	defer group.Wait()
	defer close(stop)
	works := func(when string) {
		start := time.Now()
		wait.Until(t, "visitors come "+when, func() bool { return n.since(start) > 30 })
	}
	works("at first")
	for i, m := range s.members {
		n.mu.Lock()
		clear(n.refused)
		n.mu.Unlock()
		start, before := time.Now(), leasesLost(engines)
		m.signal(t, syscall.SIGSTOP)
		time.Sleep(ttl + 3*time.Second)
		frozen := n.gap(start, time.Now())
		woken := time.Now()
		m.signal(t, syscall.SIGCONT)
		works("after a member was frozen")
		awake := n.gap(woken, time.Now())
		// A busy machine may keep etcd from electing a leader for longer.
		promised := max(ttl, cluster.gap(start, time.Now())+time.Second) + 2*time.Second
		n.mu.Lock()
		t.Logf("member %d frozen: longest time without an entry %.2f s, after it %.2f s; refused: %v", i, frozen.Seconds(), awake.Seconds(), n.refused)
		if frozen > promised || awake > promised {
			t.Errorf("member %d frozen: nobody entered for %s; promised: at most %s", i, max(frozen, awake), promised)
		}
		if n.refused[serializer.ReasonEvicted] > 0 {
			t.Errorf("member %d frozen: %d refused as evicted", i, n.refused[serializer.ReasonEvicted])
		}
		overlap := n.overlap
		n.overlap = false
		n.mu.Unlock()
		if overlap && !loseLease(engines, before, ttl) {
			t.Errorf("member %d frozen: two were inside", i)
		}
	}
}

func leasesLost(engines []*engine) (n int64) {
	for _, e := range engines {
		n += e.lost.Load()
	}
	return n
}

// loseLease reports whether any of the engines loses a lease. An engine whose lease
// etcd has ended learns that from its next keep-alive at the latest.
func loseLease(engines []*engine, before int64, ttl time.Duration) bool {
	return wait.Poll(2*ttl, func() bool { return leasesLost(engines) > before })
}
