//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// After hold_timeout, the request inside is cancelled. The turn ends when it has
// returned, and the log says so.
func TestHoldTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // long enough for a busy machine to bring the holder inside
	for _, onDisconnect := range []string{"finish", "cancel"} {
		t.Run(onDisconnect, func(t *testing.T) {
			t.Parallel()
			c := startQueue(t, "hold_timeout "+limit.String()+"\non_disconnect "+onDisconnect)
			holder := c.holder(t)
			next := c.getting("/?name=next")
			(<-holder).Want(t, http.StatusGatewayTimeout)
			c.wantServed(next)
			<-c.AwaitEntry("holder").Gone
			held := c.Hit("holder")
			if !held.Cancelled || held.Left.Sub(held.Entered) < limit/2 {
				t.Errorf("cancelled %t, after %v", held.Cancelled, held.Left.Sub(held.Entered))
			}
			line := c.awaitEntryOf("left after its turn was revoked")
			if !strings.Contains(line.Text("cause"), "hold_timeout") || line.Text("queue") != "serializer_" {
				t.Errorf("the log says %v", line)
			}
			c.awaitTickets(0)
		})
	}
}

// Bug: reverse_proxy took the end of a hold for an upstream failure, since the cause was
// not a cancellation. It retried for lb_try_duration while it held the turn.
func TestRevokedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, onDisconnect := range []string{"finish", "cancel"} {
		c := start(t, setup{site: "serialize {\npath {$DIR}\non_disconnect " + onDisconnect + "\n}\nreverse_proxy 127.0.0.1:1 {\nlb_try_duration 10m\n}"})
		one := c.getting("/")
		c.evictInside()
		(<-one).Want(t, http.StatusGatewayTimeout)
	}
}

// Bug: it also counted the end of a hold as a failure of the upstream, and marked the
// upstream as down. All later requests got 503. Bug: in nested queues, the outer one's
// hold_timeout had no effect behind the inner one.
func TestNextAfterHoldTimeout(t *testing.T) {
	t.Parallel()
	const outer = "serialize {\npath {$DIR}\nprefix outer_\nhold_timeout 2s\n}\n"
	for _, site := range []string{"reverse_proxy {$UPSTREAM} {\nfail_duration 1m\n}", "route {\n" + behindQueue("prefix inner_") + "\n}"} {
		c := start(t, setup{site: outer + site})
		(<-c.holder(t)).Want(t, http.StatusGatewayTimeout)
		c.get("/?name=next").Want(t, http.StatusOK)
		c.WantOrder("holder", "next")
		c.awaitTickets(0)
	}
}

// If hold_timeout ends while the request waits in an inner queue, it leaves that, too. Bug:
// that counted as a client that had gone.
func TestHoldTimeoutDuringInnerWait(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "metrics", site: "route {\nserialize {\npath {$DIR}\nprefix {query.name}_\nhold_timeout 2s\n}\n" + serialized + "\n}"})
	other := start(t, setup{site: serialized, dir: c.dir})
	holder := other.holder(t)
	c.get("/?name=waiter").Want(t, http.StatusGatewayTimeout)
	c.wantMetric(`requests_total{outcome="timeout",queue="serializer_"}`, "1")
	c.wantMetric(`requests_total{outcome="gone",queue="serializer_"}`, "0")
	other.release(holder)
	c.WantNever("waiter")
	c.awaitTickets(0)
}
