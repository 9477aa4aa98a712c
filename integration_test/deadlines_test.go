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
	const timeout = 2 * time.Second
	for name, body := range map[string]string{
		"GET":        "",
		"POST":       "small",
		"large POST": strings.Repeat("x", 4<<20), // kept in a file
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothVersions(t, func(t *testing.T, client *http.Client) {
				t.Parallel()
				c := start(t, setup{tls: true, site: serialized,
					servers: "timeouts {\n read_body " + timeout.String() + "\n write " + timeout.String() + "\n}"})
				// The holder is in another process, whose server has no timeouts.
				other := start(t, setup{site: serialized, dir: c.dir})
				holder := other.holder(t)
				method := strings.TrimPrefix(name, "large ")
				answer := inBackground(func() testcaddy.Answer { return do(client, method, c.url+"/?name=waiter", body) })
				c.awaitTickets(2)
				time.Sleep(timeout + timeout/2)
				other.release(holder)
				c.wantServed(answer)
				if got := len(c.Visit("waiter").Body); got != len(body) {
					t.Errorf("the upstream got %d bytes, want %d", got, len(body))
				}
			})
		})
	}
}

// The timeouts apply to the upstream as they would without a queue.
func TestTimeoutsHoldAfterWaiting(t *testing.T) {
	t.Parallel()
	bothVersions(t, func(t *testing.T, client *http.Client) {
		t.Parallel()
		c := start(t, setup{tls: true, site: serialized, servers: "timeouts {\n write 1s\n}"})
		if r := do(client, "GET", c.url+"/?name=slow&work=2s", ""); r.Err == nil {
			t.Errorf("answered after the write timeout: %v", r)
		}
		// Its turn lasts until the upstream has answered all the same.
		c.get("/?name=next").Want(t, http.StatusOK)
		c.WantAlone()
	})
}
