package serialize

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// forwarder is the log of an engine, which outlives configurations and their logs. It
// forwards to the log of one that is in use.
type forwarder struct{ atomic.Pointer[slog.Logger] }

// Enabled implements [slog.Handler], as those below do.
func (f *forwarder) Enabled(ctx context.Context, l slog.Level) bool { return f.Load().Enabled(ctx, l) }

// Handle forwards a record.
func (f *forwarder) Handle(ctx context.Context, r slog.Record) error {
	return f.Load().Handler().Handle(ctx, r)
}

// WithAttrs returns a handler that stays with the present log.
func (f *forwarder) WithAttrs(a []slog.Attr) slog.Handler { return f.Load().Handler().WithAttrs(a) }

// WithGroup is as WithAttrs.
func (f *forwarder) WithGroup(name string) slog.Handler { return f.Load().Handler().WithGroup(name) }

// Interface guard
var _ slog.Handler = (*forwarder)(nil)
