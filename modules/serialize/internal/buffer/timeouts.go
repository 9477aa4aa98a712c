package buffer

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Timeouts are a server's timeouts of one request while they are stopped. They count
// from the start of a request, but its time in a queue must not count.
type Timeouts struct {
	w       http.ResponseWriter // nil if nothing was stopped
	request *http.Request
	since   time.Time
}

// StopTimeouts stops the timeouts of a request that waits.
func StopTimeouts(w http.ResponseWriter, r *http.Request) Timeouts {
	limits := timeoutsOf(r)
	if limits == (limitsOfServer{}) {
		return Timeouts{}
	}
	t := Timeouts{innermost(w), r, time.Now()}
	t.setDeadlines(time.Time{}, time.Time{})
	return t
}

// Restart lets the timeouts count again: read_timeout and write_timeout from now, the
// others from when they were stopped.
func (t *Timeouts) Restart() {
	if t.w == nil {
		return
	}
	waited := time.Since(t.since)
	reader, writer := caddyhttp.IdleTimeoutsFromContext(t.request.Context())
	if reader != nil {
		move(&reader.Deadline, waited)
	}
	if writer != nil {
		move(&writer.Deadline, waited)
	}
	limits := timeoutsOf(t.request)
	t.setDeadlines(deadlineIn(limits.read), deadlineIn(limits.write))
	t.w = nil
}

// setDeadlines sets those of the connection. One that has none had nothing to stop.
func (t *Timeouts) setDeadlines(read, write time.Time) {
	conn := http.NewResponseController(t.w)
	_ = conn.SetReadDeadline(read)
	_ = conn.SetWriteDeadline(write)
}

// move lets a deadline of Caddy's readers and writers come later.
func move(d *caddyhttp.IdleDeadline, by time.Duration) {
	d.Start = d.Start.Add(by)
	if !d.HardDeadline.IsZero() {
		d.HardDeadline = d.HardDeadline.Add(by)
	}
}

type limitsOfServer struct {
	read, write time.Duration
	rates       bool // there are minimum rates
}

func timeoutsOf(r *http.Request) limitsOfServer {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return limitsOfServer{}
	}
	return limitsOfServer{
		time.Duration(server.ReadTimeout), time.Duration(server.WriteTimeout),
		server.ReadMinRate > 0 || server.WriteMinRate > 0,
	}
}

// deadlineIn is the time after a timeout, or none.
func deadlineIn(timeout time.Duration) time.Time {
	if timeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(timeout)
}
