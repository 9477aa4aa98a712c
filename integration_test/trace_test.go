//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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
	c := loggedRequests(t, "", "tracing\n", map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"})
	var waits []tracedSpan
	requests := make(map[string]bool) // by the ID of their span
	wait.Until(t, "all spans are exported", func() bool {
		waits = nil
		for text := range strings.Lines(c.Log.String()) {
			var span tracedSpan
			switch err := json.Unmarshal([]byte(text), &span); {
			case err != nil || span.SpanContext.SpanID == "": // another line of the log
			case span.Name == "serialize.wait":
				waits = append(waits, span)
			default:
				requests[span.SpanContext.SpanID] = true
			}
		}
		return len(waits) == 3 && len(requests) == 3
	})
	logged := fmt.Sprint(c.awaitEntries("handled request", 3))
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
