package response

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// handlersContext is the context of the handlers behind a queue. A handler
// `timeouts` among them changes the write timeouts of Caddy's writer while it runs.
// The sender may be using that writer, and continues after the handler. So the
// handler gets a copy to change, and the sender follows it.
type handlersContext struct {
	context.Context
	writer *Writer
}

// idleTimeoutsKey is what [caddyhttp.IdleTimeoutsFromContext] looks for.
const idleTimeoutsKey = caddy.CtxKey("idle_timeouts")

// callersKey is the key of the context of a queue's caller.
type callersKey struct{}

// Value implements [context.Context].
func (c *handlersContext) Value(key any) any {
	switch key {
	case idleTimeoutsKey:
		if c.writer.isBuffered() {
			return c.writer.timeouts.lend(c.Context).Value(key)
		}
	case callersKey{}:
		if outer := c.Context.Value(key); outer != nil {
			return outer
		}
		return c.Context
	}
	return c.Context.Value(key)
}

// CallersIdleWriter is Caddy's own writer of a request, whatever queue it is behind.
func CallersIdleWriter(ctx context.Context) *caddyhttp.IdleTimeoutWriter {
	if outer, ok := ctx.Value(callersKey{}).(context.Context); ok {
		ctx = outer
	}
	_, writer := caddyhttp.IdleTimeoutsFromContext(ctx)
	return writer
}

// FarAway stands for a wait without a timeout.
const FarAway = 365 * 24 * time.Hour

// writeTimeouts are those of a response.
type writeTimeouts struct {
	http2  bool
	logger *zap.Logger

	mu   sync.Mutex
	lent context.Context              // has the loan; nil until a handler has asked for it
	loan *caddyhttp.IdleTimeoutWriter // for the handlers to change

	// Set with the loan. After that, only the goroutine that writes to the client uses
	// these.
	own     *caddyhttp.IdleTimeoutWriter // Caddy's; nil if it has none
	applied timeoutSettings
	restore func() // undoes what was applied; nil if nothing was
}

// timeoutSettings are what a handler can change.
type timeoutSettings struct {
	timeout time.Duration
	minRate int64
	chunk   int
}

// settingsOf returns the settings of a writer.
func settingsOf(w *caddyhttp.IdleTimeoutWriter) timeoutSettings {
	return timeoutSettings{w.Deadline.Timeout, w.Deadline.MinRate, w.MaxChunk}
}

// lend returns a context with the loan.
func (t *writeTimeouts) lend(ctx context.Context) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lent == nil {
		var reader *caddyhttp.IdleTimeoutReader
		reader, t.own = caddyhttp.IdleTimeoutsFromContext(ctx)
		t.loan = new(caddyhttp.IdleTimeoutWriter)
		if t.own != nil {
			t.loan.Deadline, t.loan.MaxChunk = t.own.Deadline, t.own.MaxChunk
		}
		t.applied = settingsOf(t.loan)
		t.lent = caddyhttp.ContextWithIdleTimeouts(context.Background(), reader, t.loan)
	}
	return t.lent
}

// current is what the handlers that write now have set. It is false if they have
// set nothing.
func (t *writeTimeouts) current() (timeoutSettings, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lent == nil {
		return timeoutSettings{}, false
	}
	return settingsOf(t.loan), true
}

// apply makes settings hold for the writer that it returns, which writes to another.
// The goroutine that writes to the client calls it.
func (t *writeTimeouts) apply(to http.ResponseWriter, s timeoutSettings) http.ResponseWriter {
	if s == t.applied {
		return to
	}
	t.applied = s
	if t.own == nil {
		t.own = &caddyhttp.IdleTimeoutWriter{
			ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: to},
			Ctrl:                  http.NewResponseController(to),
			Deadline:              caddyhttp.IdleDeadline{Start: time.Now(), Timeout: s.timeout, MinRate: s.minRate},
			MaxChunk:              s.chunk,
			Logger:                t.logger,
			ClearBetweenWrites:    t.http2,
		}
		t.restore = t.own.HandlerDone
		return t.own
	}
	if t.restore != nil {
		t.restore()
	}
	if s.timeout == 0 { // as before the handler
		s.timeout = FarAway
	}
	t.restore = t.own.Override(s.timeout, s.minRate, s.chunk)
	return to
}

// finish gives Caddy's writer back as it was.
func (t *writeTimeouts) finish() {
	if t.restore != nil {
		t.restore()
		t.restore = nil
	}
}
