package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// awaitLog waits for a number of lines with a message.
func (s *site) awaitLog(t *testing.T, message string, n int) (lines []testcaddy.Entry) {
	t.Helper()
	wait.Eventually(t, "the log has all lines", func() error {
		if lines = s.Log.Entries(message); len(lines) != n {
			return fmt.Errorf("%d lines %q; expected %d", len(lines), message, n)
		}
		return nil
	})
	return lines
}

// newLoggingSite has a queue of one, with one to wait, and IDs.
func newLoggingSite(t *testing.T, level string) *site {
	t.Helper()
	s := unstartedSite(t)
	text := s.caddyfile("queue_length 1")
	s.start(t, "{\n\tadmin {$ADMIN}\n\tlog {\n\t\tlevel "+level+"\n\t}\n}\n"+
		strings.Replace(text, "{\n", "{\n\tunique_ids\n\tlog\n", 1))
	return s
}

// Log lines contain the request's txid even if nothing has used it before. Bug: they
// omitted it.
func TestLogOfVisit(t *testing.T) {
	t.Parallel()
	s := newLoggingSite(t, "DEBUG")
	one, inside, two, _ := s.holderAndWaiter(t, s)
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)

	entered, left, access := s.awaitLog(t, "entered", 2), s.awaitLog(t, "left", 2), s.awaitLog(t, "handled request", 2)
	for i := range entered {
		e, l := entered[i], left[i]
		if e["level"] != "debug" || e["queue"] != "a_" || e["position"] != float64(i) || e["wait"] == nil || e["token"] == "" {
			t.Errorf("entry %d is %v", i, e)
		}
		if l["level"] != "debug" || l["queue"] != "a_" || l["hold"] == nil || l["token"] != e["token"] || l["txid"] != e["txid"] {
			t.Errorf("release %d is %v; entry is %v", i, l, e)
		}
		if e["txid"] == nil || access[i]["txid"] != e["txid"] {
			t.Errorf("entry %d has txid %v; the access log has %v", i, e["txid"], access[i]["txid"])
		}
	}
}

// Refusals are logged at most once a second, with their number and a txid.
func TestLogOfRefusals(t *testing.T) {
	t.Parallel()
	s := newLoggingSite(t, "INFO")
	one, inside, two, _ := s.holderAndWaiter(t, s)
	const refusals = 100
	begin := time.Now()
	for range refusals {
		testcaddy.Get(t, s.url+"three").Want(t, 503)
	}
	refused := s.Log.Entries("refused")
	if most := 1 + int(time.Since(begin)/time.Second); len(refused) == 0 || len(refused) > most {
		t.Fatalf("%d refusals made %d lines; expected some, but at most %d", refusals, len(refused), most)
	}
	line := refused[0]
	if line["level"] != "warn" || line["queue"] != "a_" || line["reason"] != "queue_full" || line["count"] != 1.0 || line["txid"] == nil {
		t.Errorf("the refusal is %v", line)
	}
	q := s.awaitTickets(t, 2)
	testcaddy.Await(t, testcaddy.Send(t, "DELETE", s.adminURL(q, q.Tickets[0].Token), ""))
	<-inside.Gone
	s.NextNamed("two").Leave()
	testcaddy.Await(t, one)
	testcaddy.Await(t, two)
	if cut := s.awaitLog(t, "left after its turn was revoked", 1)[0]; cut["level"] != "warn" || cut["txid"] == nil || cut["queue"] != "a_" {
		t.Errorf("the eviction is %v", cut)
	}
}

// Each refusal is also a line of Caddy's own error log, beside the handler's one line a
// second. The documentation says how to silence it.
func TestErrorLogOfRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, global, options, more string
		least, most                 int // lines of 20 refusals
	}{
		{"as it is", "", "", "", 20, 20},
		{"error code below 500", "", "error_code 429", "", 0, 0},
		{"error_response", "", "error_code 503\nerror_response text/plain busy", "", 0, 0},
		{"handle_errors", "", "error_code 503", "handle_errors {\n\t\trespond busy 503\n\t}", 0, 0},
		{"sampling", quietErrors, "", "", 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := unstartedSite(t)
			text := s.caddyfile("queue_length 1\n" + c.options)
			text = strings.TrimSuffix(strings.TrimSpace(text), "}") + "\t" + c.more + "\n}\n"
			s.start(t, "{\n\tadmin {$ADMIN}\n"+c.global+"}\n"+text)
			one, inside, two, _ := s.holderAndWaiter(t, s)
			for range 20 {
				if a := testcaddy.Get(t, s.url+"more"); a.StatusCode < 400 {
					t.Fatalf("a request too many got %d", a.StatusCode)
				}
			}
			inside.Leave()
			testcaddy.Await(t, one)
			s.NextNamed("two").Leave()
			testcaddy.Await(t, two)
			lines := 0
			for text := range strings.Lines(s.Log.String()) {
				if strings.Contains(text, `"logger":"http.log.error`) {
					lines++
				}
			}
			if lines < c.least || lines > c.most {
				t.Errorf("20 refusals are %d lines of the error log; expected %d to %d", lines, c.least, c.most)
			}
			if len(s.Log.Entries("refused")) == 0 {
				t.Error("the handler's own line is missing")
			}
		})
	}
}

// quietErrors are global options that let one line a second into the error log.
const quietErrors = `
	log default {
		exclude http.log.error
	}
	log errors {
		include http.log.error
		sampling {
			interval 1s
			first 1
			thereafter 1000000
		}
	}
`
