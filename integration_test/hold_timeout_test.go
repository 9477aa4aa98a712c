//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// After hold_timeout, the request behind is cancelled. The turn ends when it
// has returned, and the log says so.
func TestHoldTimeout(t *testing.T) {
	t.Parallel()
	const limit = 500 * time.Millisecond
	for _, onDisconnect := range []string{"finish", "cancel"} {
		t.Run(onDisconnect, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			c := start(t, setup{backend: b, site: `
				serialize {
					path {$DIR}
					hold_timeout ` + limit.String() + `
					on_disconnect ` + onDisconnect + `
				}
				reverse_proxy {$BACKEND}`})
			holder := c.holder(t)
			next := c.getting("/?name=next")
			(<-holder).want(t, http.StatusGatewayTimeout)
			(<-next).want(t, http.StatusOK)

			held := b.awaitExit(t, "holder")
			if !held.cancelled || held.left.Sub(held.entered) < limit/2 {
				t.Errorf("cancelled %t, after %v", held.cancelled, held.left.Sub(held.entered))
			}
			line := c.awaitEntryOf("left after its turn was revoked")
			if !strings.Contains(line.Text("cause"), "hold_timeout") || line.Text("queue") != "serializer_" {
				t.Errorf("the log says %v", line)
			}
			c.wantNoTickets()
		})
	}
}

// A request that ends in time is left alone.
func TestHoldTimeoutNotReached(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{backend: b, site: `
		serialize {
			path {$DIR}
			hold_timeout 1m
		}
		reverse_proxy {$BACKEND}`})
	c.get("/?name=quick").want(t, http.StatusOK)
	if b.visit("quick").cancelled {
		t.Error("cancelled")
	}
	if lines := c.Log.Entries("left after its turn was revoked"); lines != nil {
		t.Errorf("the log says %v", lines)
	}
}

// In nested queues, the inner one kept the outer one's hold_timeout from what is
// behind both.
func TestHoldTimeoutAroundInnerQueue(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{backend: b, site: `
		serialize {
			path {$DIR}
			prefix outer_
			hold_timeout 500ms
		}
		route {
			serialize {
				path {$DIR}
				prefix inner_
			}
			reverse_proxy {$BACKEND}
		}`})
	holder := c.holder(t)
	(<-holder).want(t, http.StatusGatewayTimeout)
	c.get("/?name=next").want(t, http.StatusOK)
	b.wantOrder(t, "holder", "next")
	c.wantNoTickets()
}
