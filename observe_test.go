package orderly_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// logLines are the lines of the server's log with a message.
func logLines(log, message string) (lines []map[string]any) {
	for text := range strings.Lines(log) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

// awaitLog waits for a number of lines with a message.
func (s *site) awaitLog(t *testing.T, message string, n int) (lines []map[string]any) {
	t.Helper()
	s.Eventually("the log has all lines", func() error {
		if lines = logLines(s.Log(), message); len(lines) != n {
			return fmt.Errorf("%d lines %q; expected %d", len(lines), message, n)
		}
		return nil
	})
	return lines
}

// newLoggingSite has a queue of one, with one to wait, and IDs.
func newLoggingSite(t *testing.T, level string) *site {
	t.Helper()
	place, addr := testcaddy.NewPlace(t), testcaddy.FreeAddr(t)
	s := &site{Place: place, url: "http://" + addr + "/", dir: t.TempDir()}
	text := queueSite(addr, place.Addr, s.dir, "queue_length 1")
	s.Server = testcaddy.Start(t, "{\n\tadmin {$ADMIN}\n\tlog {\n\t\tlevel "+level+"\n\t}\n}\n"+
		strings.Replace(text, "{\n", "{\n\tunique_ids\n\tlog\n", 1))
	return s
}

// The lines name the request's txid even if nothing asked for it before; they
// used to leave it out then.
func TestLogOfVisit(t *testing.T) {
	t.Parallel()
	s := newLoggingSite(t, "DEBUG")
	one := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	two := s.send(t, "GET", "two")
	s.awaitTickets(t, 2)
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
	one := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	two := s.send(t, "GET", "two")
	s.awaitTickets(t, 2)
	for range 5 {
		if a := testcaddy.Get(t, s.url+"three"); a.StatusCode != 500 {
			t.Fatalf("a request too many got %d", a.StatusCode)
		}
	}
	refused := logLines(s.Log(), "refused")
	if len(refused) == 0 || len(refused) >= 5 {
		t.Fatalf("5 refusals within a moment made %d lines; expected fewer, but some", len(refused))
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
	if cut := s.awaitLog(t, "left after its stay was cut short", 1)[0]; cut["level"] != "warn" || cut["txid"] == nil || cut["queue"] != "a_" {
		t.Errorf("the eviction is %v", cut)
	}
}

// span is what the SDK's console exporter writes.
type tracedSpan struct {
	Name   string
	Events []struct {
		Name       string
		Attributes []struct {
			Key   string
			Value struct{ Value any }
		}
	}
}

func TestTraceHasEvent(t *testing.T) {
	t.Parallel()
	place, addr := testcaddy.NewPlace(t), testcaddy.FreeAddr(t)
	s := &site{Place: place, url: "http://" + addr + "/", dir: t.TempDir()}
	text := queueSite(addr, place.Addr, s.dir, "queue_length 1")
	s.Server = testcaddy.Start(t, strings.Replace(text, "{\n", "{\n\ttracing\n", 1),
		"OTEL_TRACES_EXPORTER=console", "OTEL_BSP_SCHEDULE_DELAY=50")
	one := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	two := s.send(t, "GET", "two")
	s.awaitTickets(t, 2)
	testcaddy.Get(t, s.url+"three")
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)

	wanted := map[string]bool{"serialize 0": true, "serialize 1": true, "serialize refused 2": true}
	s.Eventually("all events are exported", func() error {
		missing := fmt.Sprint(wanted)
		for _, span := range spansIn(s.Log()) {
			for _, event := range span.Events {
				attributes := make(map[string]any)
				for _, a := range event.Attributes {
					attributes[a.Key] = a.Value.Value
				}
				if attributes["queue"] != "a_" || attributes["wait_ms"] == nil {
					t.Errorf("event %s has %v", event.Name, attributes)
				}
				delete(wanted, fmt.Sprint(event.Name, " ", attributes["position"]))
			}
		}
		if len(wanted) > 0 {
			return fmt.Errorf("no events %s", missing)
		}
		return nil
	})
}

// spansIn finds the exporter's objects among the lines of the log.
func spansIn(log string) (spans []tracedSpan) {
	for text := range strings.Lines(log) {
		var span tracedSpan
		if json.Unmarshal([]byte(text), &span) == nil && span.Events != nil {
			spans = append(spans, span)
		}
	}
	return spans
}
