package engines

import (
	"context"
	"log/slog"
	"sync"
)

// forwarder is the log of an engine, which outlives configurations and their logs. It
// forwards to the log of a configuration that has the engine, or else to the first one's.
type forwarder struct {
	first slog.Handler
	users sync.Map // the keys are *Ref, of configurations
}

func (f *forwarder) to() slog.Handler {
	to := f.first
	for user := range f.users.Range {
		to = user.(*Ref).log.Handler()
		break
	}
	return to
}

// These implement [slog.Handler].
func (f *forwarder) Enabled(ctx context.Context, l slog.Level) bool  { return f.to().Enabled(ctx, l) }
func (f *forwarder) Handle(ctx context.Context, r slog.Record) error { return f.to().Handle(ctx, r) }
func (f *forwarder) WithAttrs(attrs []slog.Attr) slog.Handler        { return f.to().WithAttrs(attrs) }
func (f *forwarder) WithGroup(name string) slog.Handler              { return f.to().WithGroup(name) }
