package test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

// A cluster that was restored from a snapshot numbers its keys from an earlier
// revision on. Processes that ran through that kept their leases, which the
// snapshot had, too, and what they knew of later revisions; so two were inside
// until the revisions had come as far again.
func TestRestoredFromSnapshot(t *testing.T) {
	for name, clusterToken := range map[string]string{"the same cluster ID": "etcd-cluster", "another cluster ID": "restored"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			const ttl = 20 * time.Second
			m := startStandalone(t)
			engines := []*etcd.Engine{open(t, etcd.Options{TTL: ttl}, m.URL), open(t, etcd.Options{TTL: ttl}, m.URL)}
			turns := func(n int) {
				for _, e := range engines {
					for range n {
						enter(t, e, arrival("q")).Leave()
					}
				}
			}
			turns(1)
			waitUntilEmpty(t, m.Client(t))
			snapshot := m.snapshot(t)
			turns(100)
			revoked := make(chan error, 1)
			a := arrival("held")
			a.Revoke = func(err error) { revoked <- err }
			holder := enter(t, engines[0], a)
			m.restore(t, snapshot, clusterToken)
			back := time.Now()

			var inside, overlaps, entered atomic.Int64
			var group sync.WaitGroup
			end := time.Now().Add(4 * time.Second)
			for _, e := range engines {
				for range 2 {
					group.Go(func() {
						for time.Now().Before(end) {
							turn, err := e.Enter(context.Background(), arrival("q"))
							if err != nil {
								time.Sleep(50 * time.Millisecond)
								continue
							}
							if inside.Add(1) > 1 {
								overlaps.Add(1)
							}
							entered.Add(1)
							time.Sleep(100 * time.Millisecond)
							inside.Add(-1)
							turn.Leave()
						}
					})
				}
			}
			select {
			case err := <-revoked:
				t.Logf("the request inside was cancelled %s after etcd was back", time.Since(back).Round(time.Millisecond))
				if !errors.Is(err, serializer.ErrLost) {
					t.Errorf("revoked with %v", err)
				}
			case <-time.After(ttl / 2):
				t.Error("one whose ticket the restored cluster does not have is still inside")
			}
			holder.Leave()
			group.Wait()
			if overlaps.Load() > 0 || entered.Load() < 5 {
				t.Errorf("%d entered, %d while another was inside", entered.Load(), overlaps.Load())
			}
		})
	}
}
