package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// tracer is the name of what makes the spans.
const tracer = "github.com/orderly-http/caddy-orderly"

// startSpan begins the span of a wait, a child of the request's span, if it has one.
func (q *Request) startSpan(ctx context.Context) {
	if request := trace.SpanFromContext(ctx); request.IsRecording() {
		_, q.span = request.TracerProvider().Tracer(tracer).Start(ctx, "serialize.wait")
	}
}

// endSpan ends the span of a wait, by a turn or by err.
func (q *Request) endSpan(err error) {
	if q.span == nil {
		return
	}
	q.span.SetAttributes(
		attribute.String("serialize.queue", q.Queue),
		attribute.Float64("serialize.wait_ms", float64(waitMS(q.Waited))),
		attribute.String("serialize.slot", q.Slot),
		attribute.String("serialize.txid", q.Request().TXID),
	)
	if err == nil {
		q.span.SetAttributes(attribute.Int("serialize.position", q.Position), attribute.String("serialize.token", q.token()))
	} else {
		q.span.SetStatus(codes.Error, err.Error())
	}
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		q.span.SetAttributes(
			attribute.Int("serialize.position", refused.Position),
			attribute.String("serialize.reason", string(refused.Reason)),
		)
	}
	q.span.End()
}
