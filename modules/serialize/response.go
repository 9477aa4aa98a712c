package serialize

import (
	"net/http"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
)

// initWriter makes w write to the client of a request.
func (v *visit) initWriter(w *response.Writer, to http.ResponseWriter, r *http.Request) {
	s := v.handler
	w.Init(to, r, response.Settings{
		Turn: v.ctx, EndsWithClient: s.OnDisconnect != onDisconnectFinish, Uploading: v.uploading,
		BufferSize: int(*s.ResponseBuffer), Logger: s.logger,
	})
}

// deliver brings what is left of a response to its client.
func (v *visit) deliver(w *response.Writer, r *http.Request) {
	if w.IsDraining() {
		draining := &v.handler.meters.counts.draining
		draining.Add(1)
		defer draining.Add(-1)
		v.limitKeep()
		for inner := latestVisit(r); inner != nil && inner != v; inner = inner.next {
			inner.limitKeep() // its response is a part of this one
		}
	}
	w.Deliver()
}
