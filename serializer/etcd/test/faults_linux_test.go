package test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// One of three members fails while clients of some processes take turns. Somebody enters again within the
// time to live and two seconds. A frozen member says nothing, but its kernel still acknowledges data. Bug:
// everything stood still for 13 seconds then, leases were lost, and a waiter was refused as evicted, which
// it was not.
func TestFaults(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	freeze, thaw := signals(syscall.SIGSTOP), signals(syscall.SIGCONT)
	members, endpoints := startTrio(t, testetcd.Own)
	var engines []*serializer.Engine
	for _, m := range members {
		for m.Metric("etcd_debugging_mvcc_watcher_total ", "") == 0 { // a process begins with a random member
			engines = append(engines, open(t, etcd.Options{TTL: ttl}, endpoints...))
		}
	}
	for _, c := range []struct {
		name       string
		leads      bool
		fail, mend func(*testetcd.Server)
	}{
		{"follower frozen", false, freeze, thaw},
		{"leader killed", true, (*testetcd.Server).Kill, (*testetcd.Server).Run},
		{"leader frozen", true, freeze, thaw},
	} {
		t.Run(c.name, func(t *testing.T) {
			member := members[awaitLeader(t, members)]
			if !c.leads {
				member = members[(slices.Index(members, member)+1)%len(members)]
			}
			clients := testlease.Come(testlease.Queue, 2, engines...)
			come := func(when string) {
				before := clients.Len()
				wait.Until(t, "clients come "+when, func() bool { return clients.Len() > before+20 })
			}
			come("at first")
			c.fail(member)
			time.Sleep(ttl + 3*time.Second)
			come("without the member")
			c.mend(member)
			come("with the member again")
			refused, longest := clients.End(), slices.Max(clients.Gaps())
			t.Logf("%d turns, %d refused; the longest time without one: %.2f s", clients.Len(), len(refused), longest.Seconds())
			if longest > ttl+2*time.Second {
				t.Errorf("nobody entered for %s", longest)
			}
			if !c.leads && len(refused) > 0 {
				t.Errorf("%d were refused: %v", len(refused), refused[0])
			}
		})
	}
}

func signals(signal syscall.Signal) func(*testetcd.Server) {
	return func(m *testetcd.Server) { m.Signal(signal) }
}

// awaitLeader waits until exactly one member leads, and returns its index.
func awaitLeader(t testing.TB, members []*testetcd.Server) (leader int) {
	t.Helper()
	wait.Until(t, "a member leads", func() bool {
		leaders := 0
		for i, m := range members {
			if m.Leads() {
				leader = i
				leaders++
			}
		}
		return leaders == 1
	})
	return leader
}
