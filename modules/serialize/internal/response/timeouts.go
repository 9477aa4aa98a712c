package response

import (
	"context"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Timeouts are a server's timeouts of a request that waits. They count from the start of
// the request, but its time in a queue must not count.
type Timeouts struct {
	client  *http.ResponseController // nil if there are no timeouts
	request context.Context
	stopped time.Time
}

// StopTimeouts stops the timeouts of a request.
func StopTimeouts(w http.ResponseWriter, r *http.Request) Timeouts {
	s := serverOf(r.Context())
	if s.ReadTimeout <= 0 && s.WriteTimeout <= 0 && s.ReadMinRate <= 0 && s.WriteMinRate <= 0 {
		return Timeouts{}
	}
	t := Timeouts{http.NewResponseController(innermost(w)), r.Context(), time.Now()}
	_ = t.client.SetReadDeadline(time.Time{}) // an error: there are none
	_ = t.client.SetWriteDeadline(time.Time{})
	return t
}

// Restart lets the timeouts count again: read_timeout and write_timeout from now, the
// others from where they were stopped.
func (t *Timeouts) Restart() {
	if t.client == nil {
		return
	}
	waited := time.Since(t.stopped)
	reader, writer := caddyhttp.IdleTimeoutsFromContext(t.request)
	if reader != nil {
		move(&reader.Deadline, waited)
	}
	if writer != nil {
		move(&writer.Deadline, waited)
	}
	server := serverOf(t.request)
	_ = t.client.SetReadDeadline(deadlineIn(server.ReadTimeout))
	_ = t.client.SetWriteDeadline(deadlineIn(server.WriteTimeout))
	t.client = nil
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

// serverOf is the server of a request. Without Caddy, it has no timeouts.
func serverOf(request context.Context) *caddyhttp.Server {
	if server, ok := request.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		return server
	}
	return new(caddyhttp.Server)
}
