package response

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// StopTimeouts stops the server's timeouts of a request. They count from its start, but
// the time that it waits in a queue must not count. restart lets them count again: those
// of the server from now, and the others from where they were stopped.
func StopTimeouts(w http.ResponseWriter, r *http.Request) (restart func()) {
	ctx := r.Context()
	s, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || s.ReadTimeout <= 0 && s.WriteTimeout <= 0 && s.ReadMinRate <= 0 && s.WriteMinRate <= 0 {
		return func() {}
	}
	stopped, client := time.Now(), http.NewResponseController(innermost(w))
	_ = client.SetReadDeadline(time.Time{}) // an error: there are none
	_ = client.SetWriteDeadline(time.Time{})
	return func() {
		reader, writer := caddyhttp.IdleTimeoutsFromContext(ctx)
		if reader != nil {
			move(&reader.Deadline, time.Since(stopped))
		}
		if writer != nil {
			move(&writer.Deadline, time.Since(stopped))
		}
		_ = client.SetReadDeadline(deadlineIn(s.ReadTimeout))
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
