package serialize

import (
	"context"
	"log/slog"
)

// forwarder is the log of an engine, which outlives configurations and their logs. It
// forwards to the log of a handler that has the engine, or else to the first one's.
type forwarder struct{ first slog.Handler }

func (f *forwarder) to() slog.Handler {
	if users := registered.handlersWhere(func(s *Handler) bool { return s.engine.output == f }); len(users) > 0 {
		return users[0].engine.log.Handler()
	}
	return f.first
}

// These implement [slog.Handler].
func (f *forwarder) Enabled(ctx context.Context, l slog.Level) bool  { return f.to().Enabled(ctx, l) }
func (f *forwarder) Handle(ctx context.Context, r slog.Record) error { return f.to().Handle(ctx, r) }
func (f *forwarder) WithAttrs(attrs []slog.Attr) slog.Handler        { return f.to().WithAttrs(attrs) }
func (f *forwarder) WithGroup(name string) slog.Handler              { return f.to().WithGroup(name) }
