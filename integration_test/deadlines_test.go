//go:build unix

package integration_test

import (
	"fmt"
	"io"
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
		"GET":             "",
		"GET, write_idle": "",
		"GET, directive":  "", // bug: the minimum rate of the directive timeouts counted from the arrival
		"POST":            "small",
		"large POST":      strings.Repeat("x", 4<<20), // kept in a file
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothVersions(t, func(t *testing.T, client *http.Client) {
				t.Parallel()
				timeouts := fmt.Sprintf("read_body %[1]s\nwrite %[1]s\n", timeout)
				if strings.HasSuffix(name, "idle") {
					timeouts += "write_idle " + timeout.String()
				}
				s := setup{tls: true, site: serialized, servers: "timeouts {\n" + timeouts + "\n}"}
				if strings.HasSuffix(name, "directive") {
					s = setup{tls: true, site: "timeouts {\nwrite_timeout 1s 1000\n}\n" + serialized}
				}
				c := start(t, s)
				// The holder is in another process, whose server has no timeouts.
				other := start(t, setup{site: serialized, dir: c.dir})
				holder := other.holder(t)
				method := "GET"
				if body != "" {
					method = "POST"
				}
				answer := inBackground(func() testcaddy.Answer { return do(client, method, c.url+"/?name=waiter", body) })
				c.awaitTickets(2)
				time.Sleep(timeout + timeout/2)
				other.release(holder)
				c.wantServed(answer)
				if got := len(c.Hit("waiter").Body); got != len(body) {
					t.Errorf("the upstream got %d bytes, want %d", got, len(body))
				}
			})
		})
	}
}

// Nor does it while the body of a waiting request streams, whatever limits that. Bug: with
// `buffer off`, the body was read ahead while the request waited. That was limited, and ended
// the wait with 499. It also went on beside the access log, which has how much was read.
func TestWaitingIsNotTakenOffStreamedBodies(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	for _, timeouts := range []string{
		"read_body %[1]s\nread_body_idle 1m", "read_body_idle %[1]s", "read_body 1m\nread_body_idle %[1]s 20000\nwrite %[1]s",
	} {
		t.Run(timeouts, func(t *testing.T) {
			t.Parallel()
			site := "log\n" + behindQueue("buffer off")
			c := start(t, setup{site: site, servers: "timeouts {\n" + fmt.Sprintf(timeouts, timeout) + "\n}"})
			other := start(t, setup{site: serialized, dir: c.dir})
			holder := other.holder(t)
			half := strings.Repeat("x", 10<<10)
			conn := c.dial(head("waiter", 2*len(half)) + half)
			c.awaitTickets(2)
			time.Sleep(timeout + timeout/2)
			_, err := io.WriteString(conn, half) // before its turn, for which a busy machine may need long
			check(t, err)
			other.release(holder)
			c.wantReceived(conn, "waiter", "", 2*len(half))
		})
	}
}

// A timeout of reads ends no request whose body is here. Bug: after a wait, it ended net/http's
// look at the client, and so the context of the request.
func TestReadTimeoutAfterTheBody(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: behindQueue("on_disconnect cancel"), servers: "timeouts {\nread_body 1s\n}"})
	holder := c.holder(t)
	waiters := []<-chan testcaddy.Answer{
		c.getting("/?name=get&work=2s"),
		inBackground(func() testcaddy.Answer { return do(newClient(t, "1.1"), "POST", c.url+"/?name=post&work=2s", "body") }),
	}
	c.awaitTickets(3)
	c.release(holder)
	c.wantServed(waiters...)
}

// The timeouts apply to the upstream as they would without a queue.
func TestTimeoutsHoldAfterWaiting(t *testing.T) {
	t.Parallel()
	for _, idle := range []string{"", "write_idle 1m"} {
		bothVersions(t, func(t *testing.T, client *http.Client) {
			t.Parallel()
			c := start(t, setup{tls: true, site: serialized, servers: "timeouts {\n write 1s\n" + idle + "\n}"})
			if r := do(client, "GET", c.url+"/?name=slow&work=2s", ""); r.Err == nil {
				t.Errorf("answered after the write timeout: %v", r)
			}
			// Its turn lasts until the upstream has answered all the same.
			c.get("/?name=next").Want(t, http.StatusOK)
			c.WantAlone()
		})
	}
}
