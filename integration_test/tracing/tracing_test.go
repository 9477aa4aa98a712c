// Package tracing tests that OpenTelemetry's SDK in an upstream takes the trace
// that Caddy begins, without a collector in Caddy. It is a module of its own, so
// that nobody who builds the plugin needs the SDK.
package tracing

import (
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
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

// The document's recipe: the upstream's span is in the trace that the txid of the
// log line names.
func TestUpstreamsSpanIsInOurTrace(t *testing.T) {
	u := startUpstream(t)
	addr := testcaddy.FreeAddr(t)
	testcaddy.Start(t, `http://`+addr+` {
	unique_ids
	header X-Request-Id {http.request.txid}
	header X-Traceparent {http.request.traceparent}
	reverse_proxy `+u.addr+` {
		header_up traceparent {http.request.traceparent}
	}
}
`)
	for i := range 3 {
		answer := testcaddy.Get(t, "http://"+addr+"/")
		sent, err := uniqueid.ParseTraceContext(answer.Header.Get("X-Traceparent"))
		if err != nil || answer.Text != sent.TraceID().String() {
			t.Fatalf("Caddy sent %v, %v; the upstream's code is in trace %q", sent, err, answer.Text)
		}
		testcaddy.Eventually(t, "the span has ended", func() error {
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
