// Package tracing tests that OpenTelemetry's SDK in an upstream takes the trace
// that Caddy begins, without a collector in Caddy. It is a module of its own, so
// that nobody who builds the plugin needs the SDK.
package tracing

import (
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

// upstream is an HTTP server that OpenTelemetry's SDK watches.
type upstream struct {
	addr  string
	spans *tracetest.SpanRecorder
}

// startUpstream starts an upstream that answers with the trace ID that its own
// code sees. It samples as an SDK does by default: as its parent.
func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{spans: tracetest.NewSpanRecorder()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(u.spans))
	t.Cleanup(func() {
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Log(err)
		}
	})
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		span := trace.SpanFromContext(r.Context())
		if _, err := w.Write([]byte(span.SpanContext().TraceID().String())); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(otelhttp.NewHandler(answer, "upstream",
		otelhttp.WithTracerProvider(provider),
		otelhttp.WithPropagators(propagation.TraceContext{})))
	t.Cleanup(server.Close)
	u.addr = strings.TrimPrefix(server.URL, "http://")
	return u
}

// recipe is the Caddyfile under a heading of the recipes.
func recipe(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	_, section, fenced := strings.Cut(section, "```caddyfile\n")
	caddyfile, _, closed := strings.Cut(section, "```")
	if !found || !fenced || !closed {
		t.Fatalf("the recipes have no %q", heading)
	}
	return caddyfile
}

// The document's recipe: the upstream's span is in the trace that the txid of the
// log line names.
func TestUpstreamsSpanIsInOurTrace(t *testing.T) {
	u := startUpstream(t)
	addr := testcaddy.ReserveAddr(t)
	testcaddy.Start(t, strings.NewReplacer(
		"example.com {", "http://"+addr+" {\n\theader X-Traceparent {http.request.traceparent}",
		"localhost:9000", u.addr,
	).Replace(recipe(t, "Traces without a collector in Caddy")))
	for i := range 3 {
		answer := testcaddy.Get(t, "http://"+addr+"/")
		sent, err := uniqueid.ParseTraceContext(answer.Header.Get("X-Traceparent"))
		if err != nil || answer.Text != sent.TraceID().String() {
			t.Fatalf("Caddy sent %v, %v; the upstream's code is in trace %q", sent, err, answer.Text)
		}
		wait.Eventually(t, "the span has ended", func() error {
			if len(u.spans.Ended()) <= i {
				return errors.New("it goes on")
			}
			return nil
		})
		span := u.spans.Ended()[i]
		parent := sent.ParentID()
		if got := span.Parent().SpanID().String(); got != hex.EncodeToString(parent[:]) || !span.Parent().IsRemote() {
			t.Errorf("the parent of the span is %s, remote %t; expected %x", got, span.Parent().IsRemote(), parent)
		}
		uuid, ok := uniqueid.TraceID(span.SpanContext().TraceID()).UUIDv7()
		txid, _ := uuid.TXID()
		if !ok || txid.String() != answer.Header.Get("X-Request-Id") || !span.SpanContext().IsSampled() {
			t.Errorf("the span's trace %v is txid %v, sampled %t; the request is %s",
				span.SpanContext().TraceID(), txid, span.SpanContext().IsSampled(), answer.Header.Get("X-Request-Id"))
		}
	}
}
