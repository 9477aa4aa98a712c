package integration_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Refusals are an event for subscribers. At debug level, the log shows all events.
func TestEventOfRefusal(t *testing.T) {
	t.Parallel()
	s := newLoggingSite(t, "DEBUG")
	one, inside, two, _ := s.holderAndWaiter(t, s)
	testcaddy.Await(t, s.send(t, "POST", "three?password=secret"))
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
	var events []map[string]any
	for _, line := range s.Log.Entries("event") {
		if line["name"] == "serialize_refused" {
			events = append(events, line)
		}
	}
	if len(events) != 1 || events[0]["origin"] != "http.handlers.serialize" {
		t.Fatalf("events are %v; expected one of http.handlers.serialize", events)
	}
	data, _ := events[0]["data"].(map[string]any)
	txid, wait := data["txid"], data["wait_ms"]
	delete(data, "txid")
	delete(data, "wait_ms")
	want := map[string]any{
		"queue": "a_", "reason": "queue_full", "position": 2.0, "status": 503.0,
		"method": "POST", "path": "/three", "client_ip": "127.0.0.1", "host": strings.Trim(strings.TrimPrefix(s.url, "http:"), "/"),
	}
	if !maps.Equal(data, want) {
		t.Errorf("the event says %v; expected %v", data, want)
	}
	if _, isNumber := wait.(float64); !isNumber || !strings.Contains(fmt.Sprint(s.awaitLog(t, "handled request", 3)), fmt.Sprint("txid:", txid)) {
		t.Errorf("the event has txid %v, wait_ms %v", txid, wait)
	}
}
