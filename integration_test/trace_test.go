package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// tracedSpan is what the SDK's console exporter writes.
type tracedSpan struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ SpanID string }
	Status      struct{ Code string }
	Attributes  []struct {
		Key   string
		Value struct{ Value any }
	}
}

// Bug: the wait was an event without a duration, with attribute names that others use,
// too. Now it is a span below the request's.
func TestTraceHasSpanOfWait(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	text := s.caddyfile("queue_length 1")
	s.start(t, strings.Replace(text, "{\n", "{\n\tunique_ids\n\tlog\n\ttracing\n", 1),
		"OTEL_TRACES_EXPORTER=console", "OTEL_BSP_SCHEDULE_DELAY=50")
	one, inside, two, _ := s.holderAndWaiter(t, s)
	testcaddy.Get(t, s.url+"three")
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)

	var waits []tracedSpan
	requests := make(map[string]bool) // by the ID of their span
	wait.Eventually(t, "all spans are exported", func() error {
		waits = nil
		for _, span := range spansIn(s.Log.String()) {
			if span.Name == "serialize.wait" {
				waits = append(waits, span)
			} else {
				requests[span.SpanContext.SpanID] = true
			}
		}
		if len(waits) != 3 || len(requests) != 3 {
			return fmt.Errorf("%d waits of %d requests", len(waits), len(requests))
		}
		return nil
	})
	logged := fmt.Sprint(s.awaitLog(t, "handled request", 3))
	seen := make(map[any]bool)
	for _, wait := range waits {
		attributes := make(map[string]any)
		for _, a := range wait.Attributes {
			attributes[a.Key] = a.Value.Value
		}
		position := attributes["serialize.position"]
		seen[position] = true
		refused := position == 2.0
		if attributes["serialize.queue"] != "a_" || attributes["serialize.wait_ms"] == nil || !requests[wait.Parent.SpanID] ||
			refused != (attributes["serialize.reason"] == "queue_full") || refused != (wait.Status.Code == "Error") ||
			refused == (attributes["serialize.token"] != nil) {
			t.Errorf("a span is %+v", wait)
		}
		if txid := fmt.Sprint(attributes["serialize.txid"]); !strings.Contains(logged, "txid:"+txid) {
			t.Errorf("a span has txid %s; the access log has %s", txid, logged)
		}
	}
	if !seen[0.0] || !seen[1.0] || !seen[2.0] {
		t.Errorf("the positions are %v", seen)
	}
}

// spansIn finds the exporter's objects among the lines of the log.
func spansIn(log string) (spans []tracedSpan) {
	for text := range strings.Lines(log) {
		var span tracedSpan
		if json.Unmarshal([]byte(text), &span) == nil && span.SpanContext.SpanID != "" {
			spans = append(spans, span)
		}
	}
	return spans
}
