// Package finalanswer changes the header of a handler's final answer.
package finalanswer

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Serve runs a handler. It calls change with the header of the final answer before that is sent,
// and again when the handler has returned. Error routes have the same header, net/http sends it if
// nobody has written anything, and what was added since the head becomes trailers. Interim answers
// pass as they are.
func Serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, change func(http.Header)) error {
	answer := caddyhttp.NewResponseRecorder(w, nil, func(status int, header http.Header) (buffer bool) {
		if status >= 200 || status == http.StatusSwitchingProtocols {
			change(header)
		}
		return false
	})
	err := next.ServeHTTP(answer, r)
	change(w.Header())
	return err
}
