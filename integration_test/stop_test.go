//go:build unix

package integration_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// stopSignals are those that make Caddy stop in good order.
var stopSignals = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "Ctrl-C": syscall.SIGINT}

// awaitStopping waits until Caddy has begun to stop.
func (c *caddy) awaitStopping() {
	c.t.Helper()
	c.awaitEntry("Caddy stops", func(e entry) bool {
		return e.Text("signal") != "" && e.Text("msg") != ""
	})
}

// On stop, waiters are served within the grace period, and nothing is left.
func TestStopServesWaiting(t *testing.T) {
	t.Parallel()
	for name, signal := range stopSignals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, global: "grace_period 1m", site: serialized})
			answers := []<-chan testcaddy.Answer{c.getting("/?name=holder&gate")}
			upstream.AwaitEntry("holder")
			for i, name := range []string{"waiter1", "waiter2"} {
				answers = append(answers, c.getting("/?name="+name))
				c.awaitTickets(i + 2)
			}
			c.Signal(signal)
			c.awaitStopping()
			upstream.Open("holder")
			for _, answer := range answers {
				(<-answer).Want(t, http.StatusOK)
			}
			c.AwaitEnd()
			if c.Err != nil {
				t.Errorf("ended with %v", c.Err)
			}
			upstream.WantOrder("holder", "waiter1", "waiter2")
			upstream.WantAlone()
			c.wantOnlyGuard()
		})
	}
}

// After the grace period, waiters are refused and never enter, and holders are revoked.
// Bug: a holder left its ticket and the owner file behind.
func TestStopRefusesWaiting(t *testing.T) {
	t.Parallel()
	for name, signal := range stopSignals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, global: "grace_period 300ms", site: serialized})
			holder := c.holder(t)
			waiter := c.getting("/?name=waiter")
			c.awaitTickets(2)
			c.Signal(signal)
			c.AwaitEnd()
			// The process may end before it has sent its answers.
			for who, answer := range map[string]<-chan testcaddy.Answer{"holder": holder, "waiter": waiter} {
				if r := <-answer; r.Err == nil && r.StatusCode < 500 {
					t.Errorf("%s: %v", who, r)
				}
			}
			upstream.WantOrder("holder")
			c.wantOnlyGuard()
		})
	}
}

// A process that has served nobody leaves nothing either.
func TestStopIdle(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: serialized})
	c.get("/").Want(t, http.StatusOK)
	c.Signal(syscall.SIGTERM)
	began := time.Now()
	c.AwaitEnd()
	t.Logf("stopped after %v", time.Since(began))
	c.wantOnlyGuard()
}
