//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Time spent waiting is not taken off the server's timeouts.
func TestWaitingIsNotTakenOffTimeouts(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
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
				b := newBackend(t)
				holders := newBackend(t)
				c := start(t, setup{
					tls:     true,
					backend: b,
					env:     map[string]string{"HOLDERS": holders.addr},
					servers: "timeouts {\n read_body " + timeout.String() + "\n write " + timeout.String() + "\n}",
					site:    serialized,
				})
				// The holder is in another process, whose server has no timeouts.
				other := start(t, setup{site: serialized, backend: holders, dir: c.dir})
				holder := other.getting("/?name=holder&gate")
				holders.awaitEntry(t, "holder")
				answer := inBackground(func() response {
					return do(client, test.method, c.url+"/?name=waiter", test.body)
				})
				c.awaitTickets(2)
				time.Sleep(2 * timeout)
				holders.open("holder")
				(<-holder).want(t, http.StatusOK)
				(<-answer).want(t, http.StatusOK)
				if got := b.visit("waiter").length; got != int64(len(test.body)) {
					t.Errorf("the backend got %d bytes, want %d", got, len(test.body))
				}
			})
		})
	}
}

// The timeouts hold for the upstream as they would without a queue.
func TestTimeoutsHoldAfterWaiting(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	bothVersions(t, func(t *testing.T, client *http.Client) {
		t.Parallel()
		b := newBackend(t)
		c := start(t, setup{
			tls:     true,
			backend: b,
			servers: "timeouts {\n write " + timeout.String() + "\n}",
			site:    serialized,
		})
		r := do(client, "GET", c.url+"/?name=slow&work=2500ms", "")
		if r.err == nil {
			t.Errorf("answered after the write timeout: %v", r)
		}
		// Its turn lasts until the upstream has answered all the same.
		c.get("/?name=next").want(t, http.StatusOK)
		b.wantAlone(t)
	})
}
