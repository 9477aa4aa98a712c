//go:build unix

package integration_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

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

// wantRefusalLogged fails the test unless the log has a refusal.
func (c *caddy) wantRefusalLogged(reason, queue string) entry {
	c.t.Helper()
	return c.awaitEntry("the log has the refusal", func(e entry) bool {
		return e["msg"] == "refused" && e.Text("reason") == reason && e.Text("queue") == queue
	})
}

// A refused request gets its answer by error_response, by the error routes or,
// with neither, from Caddy. It leaves no lock file, and the upstream never
// sees it. Its timeout may be one that it asks for.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const reasons = `
		handle_errors {
			header Content-Type text/x-reason
			respond "{http.serialize.reason} {http.serialize.queue} {http.serialize.position} {err.status_code} [{http.serialize.token}]"
		}`
	answers := []struct {
		name, options, site string
		status              int
		contentType, body   string // REASON, POSITION and TOKEN stand for what they are
	}{
		{name: "default", status: 503},
		{name: "error_code", options: "error_code 429", status: 429},
		{name: "error_response", options: "error_code 599\nerror_response application/json `{\"busy\":true}`",
			status: 599, contentType: "application/json", body: `{"busy":true}`},
		{name: "error_response before handle_errors", options: "error_response text/plain busy", site: reasons,
			status: 503, contentType: "text/plain", body: "busy"},
		{name: "handle_errors", options: "error_code 409", site: reasons,
			status: 409, contentType: "text/x-reason", body: "REASON q_ POSITION 409 [TOKEN]"},
	}
	for reason, option := range map[string]string{"timeout": "timeout 1h {header.X-Request-Timeout}", "queue_full": "queue_length 1"} {
		for _, answer := range answers {
			t.Run(reason+", "+answer.name, func(t *testing.T) {
				t.Parallel()
				c := start(t, setup{site: behindQueue("prefix q_\n"+option+"\n"+answer.options) + answer.site})
				position, waiting := "1", []<-chan testcaddy.Answer{}
				holder := c.holder(t)
				if reason == "queue_full" {
					position, waiting = "2", append(waiting, c.waiter("waiter", 2))
				}
				r := c.get("/?name=refused", "X-Request-Timeout", "0.2").Want(t, answer.status)
				wantRetryAfter(t, r)
				_, token, _ := strings.Cut(strings.TrimSuffix(r.Text, "]"), "[")
				if strings.Contains(answer.body, "TOKEN") && (token > c.Hit("holder").Header.Get("X-Token")) != (reason == "timeout") {
					t.Errorf("answered %q; expected the number of its ticket, if it had one", r.Text)
				}
				body := strings.NewReplacer("REASON", reason, "POSITION", position, "TOKEN", token).Replace(answer.body)
				if got := r.Header.Get("Content-Type"); got != answer.contentType || r.Text != body {
					t.Errorf("refused with %q %q, want %q %q", got, r.Text, answer.contentType, body)
				}
				c.wantRefusalLogged(reason, "q_")
				c.release(holder)
				c.wantServed(waiting...)
				c.WantNever("refused")
				c.awaitTickets(0)
			})
		}
	}
}

// Bug: a refused request reached the same queue again in the error routes, and passed: it
// was inside beside the holder.
func TestRefusedIsRefusedAgain(t *testing.T) {
	t.Parallel()
	const waits, full = "timeout 100ms", "queue_length 1"
	refusing := behindQueue(waits)
	patient := behindQueue("timeout 1h\nerror_code 429")
	for name, test := range map[string]struct{ option, site, more, body string }{
		"by timeout":      {option: waits, site: refusing + "\nhandle_errors {\n" + refusing + "\n}"},
		"by a full queue": {option: full, site: behindQueue(full) + "\nhandle_errors {\n" + behindQueue(full) + "\n}"},
		"with an answer of its own": {option: waits, body: "busy",
			site: refusing + "\nhandle_errors {\n" + behindQueue("error_code 429\nerror_response text/plain busy") + "\n}"},
		"after a rewrite": {option: waits,
			site: refusing + "\nhandle_errors {\nrewrite /elsewhere\nroute /elsewhere {\n" + patient + "\n}\n}"},
		"in a named route": {option: waits, site: "invoke queue\nhandle_errors {\ninvoke queue\n}",
			more: "&(queue) {\nroute {\n" + refusing + "\n}\n}"},
		"in an inner queue": {option: waits, site: "serialize {\npath {$DIR}\nprefix outer_{query.name}_\n}\nroute {\n" +
			refusing + "\n}\nhandle_errors {\n" + patient + "\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: test.site, more: test.more})
			holder, waiting := c.holder(t), []<-chan testcaddy.Answer{}
			if test.option == full {
				waiting = append(waiting, c.waiter("waiter", 2))
			}
			if r := c.get("/?name=refused").Want(t, http.StatusServiceUnavailable); r.Text != test.body {
				t.Errorf("answered %q, want %q", r.Text, test.body)
			}
			c.release(holder)
			c.wantServed(waiting...)
			c.WantNever("refused")
			c.wantAlone()
			c.awaitTickets(0)
		})
	}
}
