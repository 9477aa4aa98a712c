//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// After hold_timeout, the request inside is cancelled. The turn ends when it has
// returned, and the log says so.
func TestHoldTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // long enough for a busy machine to bring the holder inside
	for _, onDisconnect := range []string{"finish", "cancel"} {
		t.Run(onDisconnect, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, site: `
				serialize {
					path {$DIR}
					hold_timeout ` + limit.String() + `
					on_disconnect ` + onDisconnect + `
				}
				reverse_proxy {$UPSTREAM}`})
			holder := c.holder(t)
			next := c.getting("/?name=next")
			(<-holder).Want(t, http.StatusGatewayTimeout)
			(<-next).Want(t, http.StatusOK)

			held := upstream.AwaitExit("holder")
			if !held.Cancelled || held.Left.Sub(held.Entered) < limit/2 {
				t.Errorf("cancelled %t, after %v", held.Cancelled, held.Left.Sub(held.Entered))
			}
			line := c.awaitEntryOf("left after its turn was revoked")
			if !strings.Contains(line.Text("cause"), "hold_timeout") || line.Text("queue") != "serializer_" {
				t.Errorf("the log says %v", line)
			}
			c.wantNoTickets()
		})
	}
}

// A request that ends in time is not affected.
func TestHoldTimeoutNotReached(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			hold_timeout 1m
		}
		reverse_proxy {$UPSTREAM}`})
	c.get("/?name=quick").Want(t, http.StatusOK)
	if upstream.Visit("quick").Cancelled {
		t.Error("cancelled")
	}
	if lines := c.Log.Entries("left after its turn was revoked"); lines != nil {
		t.Errorf("the log says %v", lines)
	}
}

// Bug: in nested queues, the outer one's hold_timeout had no effect behind the inner one.
func TestHoldTimeoutAroundInnerQueue(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			prefix outer_
			hold_timeout 2s
		}
		route {
			serialize {
				path {$DIR}
				prefix inner_
			}
			reverse_proxy {$UPSTREAM}
		}`})
	holder := c.holder(t)
	(<-holder).Want(t, http.StatusGatewayTimeout)
	c.get("/?name=next").Want(t, http.StatusOK)
	upstream.WantOrder("holder", "next")
	c.wantNoTickets()
}
