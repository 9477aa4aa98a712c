// Package tracing tests that OpenTelemetry's SDK in an upstream takes the trace
// that Caddy begins, without a collector in Caddy. It is a module of its own, so
// that nobody who builds the plugin needs the SDK.
package tracing

import (
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

// The document's recipe: the upstream's span is in the trace that the txid of the
// log line names. The upstream samples as an SDK does by default: as its parent.
func TestUpstreamsSpanIsInOurTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	upstream := testcaddy.Serve(t, otelhttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, trace.SpanFromContext(r.Context()).SpanContext().TraceID().String())
	}), "upstream", otelhttp.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
		otelhttp.WithPropagators(propagation.TraceContext{})))
	text, err := os.ReadFile("../../docs/recipes.md")
	const heading = "Traces without a collector in Caddy"
	recipe := regexp.MustCompile("(?s)\n## " + heading + "\n.*?```caddyfile\n(.*?)```").FindSubmatch(text)
	if recipe == nil {
		t.Fatalf("the recipes have no %q: %v", heading, err)
	}
	addr := testprocess.FreeAddr(t)
	testcaddy.Start(t, strings.NewReplacer(
		"example.com {", "http://"+addr+" {\n\theader X-Traceparent {http.request.traceparent}",
		"localhost:9000", upstream,
	).Replace(string(recipe[1])))
	for i := range 3 {
		answer := testcaddy.Get(t, "http://"+addr+"/")
		sent, err := uniqueid.ParseTraceContext(answer.Header.Get("X-Traceparent"))
		if err != nil || answer.Text != sent.TraceID().String() {
			t.Fatalf("Caddy sent %v, %v; the upstream's code is in trace %q", sent, err, answer.Text)
		}
		wait.Until(t, "the span has ended", func() bool { return len(spans.Ended()) > i })
		span := spans.Ended()[i]
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
