//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// wantRetryAfter fails the test unless a refusal says when to try again.
func wantRetryAfter(t testing.TB, r testcaddy.Answer) {
	t.Helper()
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 120 {
		t.Errorf("Retry-After: %q, want 1 to 120 seconds", r.Header.Get("Retry-After"))
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
		{name: "default", status: 503},
		{name: "error_code", options: "error_code 429", status: 429},
		{name: "error_response", options: "error_code 599\nerror_response application/json `{\"busy\":true}`",
			status: 599, contentType: "application/json", body: `{"busy":true}`},
		{name: "error_response before handle_errors", options: "error_response text/plain busy", site: reasons,
			status: 503, contentType: "text/plain", body: "busy"},
		{name: "handle_errors", options: "error_code 409", site: reasons,
			status: 409, contentType: "text/x-reason", body: "REASON q_ POSITION 409"},
	}
	for _, cause := range causes {
		for _, answer := range answers {
			t.Run(cause.reason+", "+answer.name, func(t *testing.T) {
				t.Parallel()
				upstream := testcaddy.NewUpstream(t)
				c := start(t, setup{upstream: upstream, site: fmt.Sprintf(`
					serialize {
						path {$DIR}
						prefix q_
						%s
						%s
					}
					reverse_proxy {$UPSTREAM}
					%s`, cause.options, answer.options, answer.site)})
				holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/?name=holder&gate") })
				position := "1"
				var waiter <-chan testcaddy.Answer
				if cause.reason == "queue_full" {
					waiter = c.getting("/?name=waiter")
					c.awaitTickets(2)
					position = "2"
				}
				r := c.get("/?name=refused").Want(t, answer.status)
				wantRetryAfter(t, r)
				body := strings.NewReplacer("REASON", cause.reason, "POSITION", position).Replace(answer.body)
				if got := r.Header.Get("Content-Type"); got != answer.contentType || r.Text != body {
					t.Errorf("refused with %q %q, want %q %q", got, r.Text, answer.contentType, body)
				}
				c.wantRefusalLogged(cause.reason, "q_")
				release(t, upstream, holder)
				if waiter != nil {
					(<-waiter).Want(t, http.StatusOK)
				}
				upstream.WantNever("refused")
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

// With timeout 0, a request waits for ever: here, longer than any other timeout.
func TestNoTimeout(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			timeout 0
		}
		reverse_proxy {$UPSTREAM}`})
	holder := c.holder(t)
	waiter := c.getting("/?name=waiter")
	c.awaitTickets(2)
	wantNoAnswer(t, waiter, 500*time.Millisecond)
	release(t, upstream, holder)
	(<-waiter).Want(t, http.StatusOK)
}
