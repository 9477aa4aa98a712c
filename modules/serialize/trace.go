package serialize

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// spanWait is the name of the span of a wait, a child of the request's span.
const spanWait = "serialize.wait"

// startWait begins the span of a wait. It is nil if the request has no trace.
func (v *visit) startWait(ctx context.Context) trace.Span {
	if !v.traced {
		return nil
	}
	request := trace.SpanFromContext(ctx)
	if !request.IsRecording() {
		return nil
	}
	_, span := request.TracerProvider().Tracer(orderlyModule).Start(ctx, spanWait)
	return span
}

// endWait ends the span of a wait, by a turn or by err.
func (v *visit) endWait(span trace.Span, err error) {
	if span == nil {
		return
	}
	span.SetAttributes(
		attribute.String("serialize.queue", v.queue),
		attribute.Float64("serialize.wait_ms", float64(newWaitMS(v.waited))),
	)
	if v.id != nil {
		span.SetAttributes(attribute.String("serialize.txid", v.id.TXID()))
	}
	switch {
	case err == nil:
		span.SetAttributes(attribute.Int("serialize.position", v.turn.Position()), attribute.String("serialize.token", v.token()))
	case errors.Is(err, waitingpage.ErrAnswered):
		span.SetAttributes(attribute.Bool("serialize.waiting_page", true))
	default:
		span.SetStatus(codes.Error, err.Error())
	}
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		span.SetAttributes(attribute.Int("serialize.position", refused.Position), attribute.String("serialize.reason", string(refused.Reason)))
	}
	span.End()
}
