package serialize

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The documentation has every metric with its labels, and no other; and every outcome.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	documented := make(map[string]string) // labels, by name
	for _, row := range regexp.MustCompile("(?m)^\\| `(caddy_serialize_\\w+)` \\| (?:counter|gauge|histogram) \\| (.*?) \\|").FindAllStringSubmatch(page, -1) {
		documented[row[1]] = strings.NewReplacer("`", "", " ", "").Replace(row[2])
	}
	exported := make(map[string]string)
	m := metrics()
	descs := make(chan *prometheus.Desc, 100)
	for _, c := range []prometheus.Collector{m.wait, m.hold, m.idle, m.atOnce, m} {
		c.Describe(descs)
	}
	close(descs)
	parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)
	for desc := range descs {
		match := parts.FindStringSubmatch(desc.String())
		if match == nil {
			t.Fatalf("a metric describes itself as %s", desc)
		}
		exported[match[1]] = match[2]
	}
	if !maps.Equal(documented, exported) {
		t.Errorf("docs/operations.md has %v; exported are %v", documented, exported)
	}

	for _, outcome := range slices.Concat(outcomes, keptOutcomes) {
		if !strings.Contains(page, "`"+outcome+"`") {
			t.Errorf("docs/operations.md does not have the outcome %s", outcome)
		}
	}
}

// moody is an engine that refuses everybody, for a reason of its own.
type moody struct{ serializer.Engine }

func (moody) Enter(_ context.Context, a serializer.Arrival) (serializer.Turn, error) {
	return nil, &serializer.Refused{Reason: "mood", Queue: a.Queue, Err: errors.New("in a bad mood")}
}

// Bug: an engine that gave a reason of its own ended the request by a panic. For a browser
// with the waiting page, it ended the process.
func TestReasonOfAnotherEngine(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		s := newQueue(t, 0)
		s.meters = newMeters(metrics(), t.Name())
		t.Cleanup(openStats(t.Name(), prefixUse{}, s.meters))
		s.engine.Engine = moody{s.engine.Engine}
		w := httptest.NewRecorder()
		r := caddyhttp.PrepareRequest(httptest.NewRequest(http.MethodGet, "/", http.NoBody), caddy.NewReplacer(), w, new(caddyhttp.Server))
		err := s.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
			t.Error("the request was served")
			return nil
		}))
		failure, _ := errors.AsType[caddyhttp.HandlerError](err)
		reason, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Get("http.serialize.reason")
		if failure.StatusCode != http.StatusServiceUnavailable || reason != "storage" || !strings.Contains(err.Error(), "in a bad mood") {
			t.Errorf("refused with %d for %q: %v", failure.StatusCode, reason, err)
		}
		wantOutcomes(t, s.meters, map[string]int64{"storage": 1})
	})
	t.Run("waiting page", func(t *testing.T) {
		s, _ := keepMany(t, MemoryEngine{}, 0)
		s.engine.Engine = moody{s.engine.Engine}
		k, _ := s.arriveFrom(t, "192.0.2.1")
		wait.Until(t, "the refusal", func() bool {
			keptTickets.mu.Lock()
			defer keptTickets.mu.Unlock()
			return k.state == keptRefused
		})
		keptTickets.giveUp(k)
		wantOutcomes(t, s.meters, map[string]int64{"storage": 1})
		leaveAll(s, nil)
	})
}

// wantOutcomes compares the outcomes that have been counted.
func wantOutcomes(t *testing.T, m *meters, want map[string]int64) {
	t.Helper()
	got := make(map[string]int64)
	for outcome, count := range m.counts.outcomes {
		if n := count.Load(); n > 0 {
			got[outcome] = n
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("outcomes are %v; expected %v", got, want)
	}
}
