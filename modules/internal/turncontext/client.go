package turncontext

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
)

// StopTimeouts stops the server's timeouts of a request. They count from its start, but
// the time that it waits in a queue must not count. restart lets them count again: those
// of the server from now, and the others from where they were stopped. That of reads does
// so only over HTTP/1 if a part of the body is still to come: later, net/http reads ahead
// to see whether the client is there, and would take a deadline for its end.
func StopTimeouts(w http.ResponseWriter, r *http.Request) (restart func()) {
	ctx := r.Context()
	s, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	reader, writer := caddyhttp.IdleTimeoutsFromContext(ctx) // of the server, or of the directive timeouts
	rated := reader != nil && reader.Deadline.MinRate > 0 || writer != nil && writer.Deadline.MinRate > 0
	if !ok || s.ReadTimeout <= 0 && s.WriteTimeout <= 0 && !rated { // each read or write has its own time
		return func() {}
	}
	stopped, client := time.Now(), Client(w)
	_ = client.SetReadDeadline(time.Time{}) // an error: there are none
	_ = client.SetWriteDeadline(time.Time{})
	return func() {
		if reader != nil {
			move(&reader.Deadline, time.Since(stopped))
		}
		if writer != nil {
			move(&writer.Deadline, time.Since(stopped))
		}
		if r.ProtoMajor > 1 || requestbody.Unread(r) {
			_ = client.SetReadDeadline(deadlineIn(s.ReadTimeout))
		}
		_ = client.SetWriteDeadline(deadlineIn(s.WriteTimeout))
	}
}

// move lets the deadlines that Caddy computes for reads and writes come later.
func move(d *caddyhttp.IdleDeadline, by time.Duration) {
	d.Start = d.Start.Add(by)
	if !d.HardDeadline.IsZero() {
		d.HardDeadline = d.HardDeadline.Add(by)
	}
}

// deadlineIn is the deadline of a timeout that begins now, or none.
func deadlineIn(timeout caddy.Duration) time.Time {
	if timeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(timeout))
}

// Client is net/http's own writer to a client, below all wrappers of Caddy, which are not
// made for two goroutines.
func Client(w http.ResponseWriter) *http.ResponseController {
	return http.NewResponseController(requestbody.Unwrapped(w))
}

type connKey struct{}

// KeepConnections lets the requests of the server of a configuration, if it is for one, know their
// connections.
func KeepConnections(ctx caddy.Context) {
	s, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return
	}
	s.RegisterConnContext(func(ctx context.Context, conn net.Conn) context.Context {
		if ctx.Value(connKey{}) != nil { // another handler has registered, too
			return ctx
		}
		return context.WithValue(ctx, connKey{}, conn)
	})
}

// Past is a deadline that ends what blocks on the client.
var Past = time.Unix(1, 0)

// stuckTime is how long the reset of an HTTP/2 stream may take to be written after a revocation.
const stuckTime = time.Second

// CutReads ends a read of the body, since the context has ended. net/http takes that for
// the end of an HTTP/1 client, which is still there and waits for its answer.
func (c *Context) CutReads(w http.ResponseWriter, major int) {
	if major == 1 && c.Request().Err() == nil {
		c.outermost().cut.Store(true)
	}
	_ = Client(w).SetReadDeadline(Past)
}

// EndReads ends at a deadline what net/http reads of an HTTP/1 request after its handlers.
// Caddy's own deadlines for reads would remove that one, unless they know of one in the past.
func EndReads(w http.ResponseWriter, deadline time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(Past)
	_ = Client(w).SetReadDeadline(deadline)
}

// ReadsCut reports whether reads of the body of an HTTP/1 request were ended.
func (c *Context) ReadsCut() bool { return c.outermost().cut.Load() }

// CutWrites ends a write to the client, since the context has ended. Over HTTP/2, it resets
// the stream, even if nothing is written. A client that reads nothing at all keeps the reset
// from being written; then its connection ends.
func (c *Context) CutWrites(w http.ResponseWriter) {
	if !c.Sent() {
		return
	}
	_ = Client(w).SetWriteDeadline(Past)
	revoked := c.Revoked()
	if conn, ok := c.outer.Value(connKey{}).(net.Conn); ok && revoked != nil && time.Since(revoked.Time) > stuckTime {
		_ = conn.SetWriteDeadline(Past)
	}
}
