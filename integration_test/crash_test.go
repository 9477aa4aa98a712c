//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// If the process of the holder is killed, the next request is inside within 250 ms. The
// machine may be busy, so the median of several kills counts.
func TestKillHolder(t *testing.T) {
	const kills, limit = 5, 250 * time.Millisecond
	upstream := testcaddy.NewUpstream(t)
	survivor := start(t, setup{site: serialized, upstream: upstream})
	var recoveries []time.Duration
	for i := range kills {
		victim := start(t, setup{site: serialized, upstream: upstream, dir: survivor.dir})
		holder, waiter, next := fmt.Sprint("holder", i), fmt.Sprint("waiter", i), fmt.Sprint("next", i)
		victim.getting("/?gate&name=" + holder)
		upstream.AwaitEntry(holder)
		victim.getting("/?name=" + waiter)
		survivor.awaitTickets(2)
		answer := survivor.getting("/?name=" + next)
		survivor.awaitTickets(3)

		killed := time.Now()
		victim.Signal(syscall.SIGKILL)
		recoveries = append(recoveries, upstream.AwaitEntry(next).Entered.Sub(killed))
		(<-answer).Want(t, http.StatusOK)
		upstream.WantNever(waiter)
		survivor.wantNoTickets()
	}
	slices.Sort(recoveries)
	t.Logf("the next one was inside after %v", recoveries)
	if recoveries[kills/2] > limit {
		t.Errorf("the next one was inside after %v, want at most %v", recoveries, limit)
	}
}

// Waiters in a killed process do not block the queue either.
func TestKillWaiter(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	survivor := start(t, setup{site: serialized, upstream: upstream})
	victim := start(t, setup{site: serialized, upstream: upstream, dir: survivor.dir})
	holder := survivor.getting("/?gate&name=holder")
	upstream.AwaitEntry("holder")
	victim.getting("/?name=waiter")
	survivor.awaitTickets(2)
	next := survivor.getting("/?name=next")
	survivor.awaitTickets(3)
	victim.Signal(syscall.SIGKILL)
	<-victim.Ended
	release(t, upstream, holder)
	(<-next).Want(t, http.StatusOK)
	upstream.WantOrder("holder", "next")
	survivor.wantNoTickets()
}

// A stopped process keeps its turn, because it may continue at any time. The others wait,
// and end by their own timeouts.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	const site = `
		serialize {
			path {$DIR}
			timeout 1s
		}
		reverse_proxy {$UPSTREAM}`
	upstream := testcaddy.NewUpstream(t)
	stopped := start(t, setup{site: site, upstream: upstream})
	other := start(t, setup{site: site, upstream: upstream, dir: stopped.dir})
	holder := bringInside(t, upstream, func() testcaddy.Answer { return stopped.get("/?gate&name=holder") })
	stopped.Signal(syscall.SIGSTOP)
	other.get("/?name=refused").Want(t, http.StatusServiceUnavailable)
	upstream.WantNever("refused")

	stopped.Signal(syscall.SIGCONT)
	release(t, upstream, holder)
	other.get("/?name=next").Want(t, http.StatusOK)
	upstream.WantOrder("holder", "next")
}

// A killed process leaves nothing that obstructs a process that starts later.
func TestStartAfterKill(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	victim := start(t, setup{site: serialized, upstream: upstream})
	victim.getting("/?gate&name=holder")
	upstream.AwaitEntry("holder")
	victim.Signal(syscall.SIGKILL)
	<-victim.Ended
	if len(lockFiles(t, victim.dir)) != 1 {
		t.Errorf("lock files %v", lockFiles(t, victim.dir))
	}
	next := start(t, setup{site: serialized, upstream: upstream, dir: victim.dir})
	next.get("/?name=next").Want(t, http.StatusOK)
	next.wantNoTickets()
}
