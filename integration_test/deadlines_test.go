//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Time spent waiting does not count towards the server's timeouts.
func TestWaitingIsNotTakenOffTimeouts(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	tests := []struct {
		name   string
		body   string
		method string
	}{
		{"GET", "", "GET"},
		{"POST that fits the buffer", "small", "POST"},
		// Its rest is read from the client only after the wait.
		{"large POST", strings.Repeat("x", 4<<20), "POST"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bothVersions(t, func(t *testing.T, client *http.Client) {
				t.Parallel()
				upstream := testcaddy.NewUpstream(t)
				holders := testcaddy.NewUpstream(t)
				c := start(t, setup{
					tls:      true,
					upstream: upstream,
					env:      map[string]string{"HOLDERS": holders.Addr},
					servers:  "timeouts {\n read_body " + timeout.String() + "\n write " + timeout.String() + "\n}",
					site:     serialized,
				})
				// The holder is in another process, whose server has no timeouts.
				other := start(t, setup{site: serialized, upstream: holders, dir: c.dir})
				holder := other.getting("/?name=holder&gate")
				holders.AwaitEntry("holder")
				answer := inBackground(func() testcaddy.Answer {
					return do(client, test.method, c.url+"/?name=waiter", test.body)
				})
				c.awaitTickets(2)
				time.Sleep(2 * timeout)
				holders.Open("holder")
				(<-holder).Want(t, http.StatusOK)
				(<-answer).Want(t, http.StatusOK)
				if got := len(upstream.Visit("waiter").Body); got != len(test.body) {
					t.Errorf("the upstream got %d bytes, want %d", got, len(test.body))
				}
			})
		})
	}
}

// The timeouts apply to the upstream as they would without a queue.
func TestTimeoutsHoldAfterWaiting(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	bothVersions(t, func(t *testing.T, client *http.Client) {
		t.Parallel()
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{
			tls:      true,
			upstream: upstream,
			servers:  "timeouts {\n write " + timeout.String() + "\n}",
			site:     serialized,
		})
		r := do(client, "GET", c.url+"/?name=slow&work=2500ms", "")
		if r.Err == nil {
			t.Errorf("answered after the write timeout: %v", r)
		}
		// Its turn lasts until the upstream has answered all the same.
		c.get("/?name=next").Want(t, http.StatusOK)
		upstream.WantAlone()
	})
}
