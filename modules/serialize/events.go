package serialize

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// eventRefused is the event of a refused request.
const eventRefused = "serialize_refused"

// eventsOf is Caddy's events app, or nil. Every configuration with an HTTP server has
// one.
func eventsOf(ctx caddy.Context) (*caddyevents.App, error) {
	app, err := ctx.AppIfConfigured("events")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("loading events: %w", err)
	}
	return app.(*caddyevents.App), nil
}

// emitRefusal emits the event of a refusal, if it has subscribers. Requests of a
// replaced configuration emit none.
func (s *Handler) emitRefusal(ctx context.Context, v *visit, refused *serializer.Refused, status int) {
	if s.events == nil || !s.events.ShouldEmit(eventRefused) || s.ctx.Err() != nil {
		return
	}
	request := v.describeRequest(ctx)
	s.events.Emit(s.ctx, eventRefused, map[string]any{
		"queue":     v.queue,
		"reason":    string(refused.Reason),
		"position":  refused.Position,
		"wait_ms":   newWaitMS(v.waited),
		"status":    status,
		"method":    request.Method,
		"host":      request.Host,
		"path":      request.Path,
		"client_ip": request.ClientIP,
		"txid":      request.TXID,
	})
}
