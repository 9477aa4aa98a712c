// Package deadlines stops a server's timeouts of a request while it waits in a queue.
package deadlines

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
)

// Deadlines are the server's timeouts of one request. They count from its
// start, but the time that it waits in the queue must not count.
type Deadlines struct {
	conn   http.ResponseWriter // net/http's own
	server *caddyhttp.Server
	reader *caddyhttp.IdleTimeoutReader
	writer *caddyhttp.IdleTimeoutWriter
	read   caddyhttp.IdleDeadline // of the reader, as it was
	write  caddyhttp.IdleDeadline // of the writer, as it was
}

// Stop sets the request's deadlines aside for a wait of at most limit
// (0 is for ever). It returns nil if the server has none.
func Stop(w http.ResponseWriter, r *http.Request, limit time.Duration) *Deadlines {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.ReadTimeout <= 0 && server.WriteTimeout <= 0 && server.ReadMinRate <= 0 && server.WriteMinRate <= 0 {
		return nil
	}
	if limit == 0 {
		limit = response.FarAway
	}
	d := &Deadlines{conn: response.Innermost(w), server: server}
	d.reader, _ = caddyhttp.IdleTimeoutsFromContext(r.Context())
	d.writer = response.CallersIdleWriter(r.Context())
	if d.reader != nil {
		d.read = d.reader.Deadline
	}
	if d.writer != nil {
		d.write = d.writer.Deadline
	}
	d.shift(limit)
	// While nothing is read or written, no deadline needs to be armed. Not
	// every connection can do this; then there was nothing to stop.
	rc := http.NewResponseController(d.conn)
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.SetWriteDeadline(time.Time{})
	return d
}

// shift moves the deadlines that Caddy computes for every read and write.
func (d *Deadlines) shift(by time.Duration) {
	if d.reader != nil {
		d.reader.Deadline.Start, d.reader.Deadline.HardDeadline = shifted(d.read, by)
	}
	if d.writer != nil {
		d.writer.Deadline.Start, d.writer.Deadline.HardDeadline = shifted(d.write, by)
	}
}

func shifted(was caddyhttp.IdleDeadline, by time.Duration) (start, hard time.Time) {
	if was.HardDeadline.IsZero() {
		return was.Start.Add(by), was.HardDeadline
	}
	return was.Start.Add(by), was.HardDeadline.Add(by)
}

// Restart sets the deadlines again, later by the time waited.
func (d *Deadlines) Restart(waited time.Duration) {
	if d == nil {
		return
	}
	d.shift(waited)
	now := time.Now()
	rc := http.NewResponseController(d.conn)
	if timeout := time.Duration(d.server.ReadTimeout); timeout > 0 {
		_ = rc.SetReadDeadline(now.Add(timeout))
	}
	if timeout := time.Duration(d.server.WriteTimeout); timeout > 0 {
		_ = rc.SetWriteDeadline(now.Add(timeout))
	}
}
