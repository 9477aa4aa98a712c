//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wantRetryAfter fails the test unless a refusal says when to try again.
func (r response) wantRetryAfter(t testing.TB) {
	t.Helper()
	seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 120 {
		t.Errorf("Retry-After: %q, want 1 to 120 seconds", r.header.Get("Retry-After"))
	}
}

// A refused request gets its answer by error_response, by the error routes or,
// with neither, from Caddy. It leaves no lock file, and the upstream never
// sees it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const reasons = `
		handle_errors {
			header Content-Type text/x-reason
			respond "{http.serialize.reason} {http.serialize.queue} {http.serialize.position} {err.status_code}"
		}`
	causes := []struct{ reason, options string }{
		{"timeout", "timeout 200ms"},
		{"queue_full", "queue_length 1"},
	}
	answers := []struct {
		name, options, site string
		status              int
		contentType, body   string // REASON and POSITION stand for what they are
	}{
		{name: "default", status: 500},
		{name: "error_code", options: "error_code 429", status: 429},
		{name: "error_response", options: "error_code 599\nerror_response application/json `{\"busy\":true}`",
			status: 599, contentType: "application/json", body: `{"busy":true}`},
		{name: "error_response before handle_errors", options: "error_response text/plain busy", site: reasons,
			status: 500, contentType: "text/plain", body: "busy"},
		{name: "handle_errors", options: "error_code 409", site: reasons,
			status: 409, contentType: "text/x-reason", body: "REASON q_ POSITION 409"},
	}
	for _, cause := range causes {
		for _, answer := range answers {
			t.Run(cause.reason+", "+answer.name, func(t *testing.T) {
				t.Parallel()
				b := newBackend(t)
				c := start(t, setup{backend: b, site: fmt.Sprintf(`
					serialize {
						path {$DIR}
						prefix q_
						%s
						%s
					}
					reverse_proxy {$BACKEND}
					%s`, cause.options, answer.options, answer.site)})
				holder := b.hold(t, func() response { return c.get("/?name=holder&gate") })
				position := "1"
				var waiter <-chan response
				if cause.reason == "queue_full" {
					waiter = c.getting("/?name=waiter")
					c.awaitTickets(2)
					position = "2"
				}
				r := c.get("/?name=refused").want(t, answer.status)
				r.wantRetryAfter(t)
				body := strings.NewReplacer("REASON", cause.reason, "POSITION", position).Replace(answer.body)
				if got := r.header.Get("Content-Type"); got != answer.contentType || r.body != body {
					t.Errorf("refused with %q %q, want %q %q", got, r.body, answer.contentType, body)
				}
				c.wantRefusalLogged(cause.reason, "q_")
				b.open("holder")
				(<-holder).want(t, http.StatusOK)
				if waiter != nil {
					(<-waiter).want(t, http.StatusOK)
				}
				b.wantNever(t, "refused")
				c.wantNoTickets()
			})
		}
	}
}

// wantRefusalLogged fails the test unless the log tells of a refusal.
func (c *caddy) wantRefusalLogged(reason, queue string) entry {
	c.t.Helper()
	return c.awaitEntry("the log tells of the refusal", func(e entry) bool {
		return e["msg"] == "refused" && e.Text("reason") == reason && e.Text("queue") == queue
	})
}

// With timeout 0, a request waits for ever: here, longer than any other
// timeout would be.
func TestNoTimeout(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{backend: b, site: `
		serialize {
			path {$DIR}
			timeout 0
		}
		reverse_proxy {$BACKEND}`})
	holder := c.holder(t)
	waiter := c.getting("/?name=waiter")
	c.awaitTickets(2)
	select {
	case r := <-waiter:
		t.Fatalf("answered while another was inside: %v", r)
	case <-time.After(500 * time.Millisecond):
	}
	b.open("holder")
	(<-holder).want(t, http.StatusOK)
	(<-waiter).want(t, http.StatusOK)
}
