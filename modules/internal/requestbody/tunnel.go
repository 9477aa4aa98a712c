package requestbody

import (
	"io"
	"net/http"
	"sync/atomic"
)

// tunnel is what the client of a WebSocket over HTTP/2 or HTTP/3 sends. It is not read before
// the turn, as a body is. Until the handlers have accepted the WebSocket, it is empty. Otherwise,
// any client could say that it opens one, and keep the turn with a body that does not end.
type tunnel struct {
	io.ReadCloser
	accepted atomic.Bool
}

// Tunnel returns a function that accepts the WebSocket that a request opens, or nil if it
// opens none.
func Tunnel(r *http.Request) (accept func()) {
	if !isWebSocket(r) {
		return nil
	}
	t := &tunnel{ReadCloser: r.Body}
	r.Body = t
	return func() { t.accepted.Store(true) }
}

// isWebSocket reports whether a request opens a WebSocket over HTTP/2 or HTTP/3, as
// Caddy's proxy does.
func isWebSocket(r *http.Request) bool {
	return r.Method == http.MethodConnect &&
		(r.ProtoMajor == 2 && r.Header.Get(":protocol") == "websocket" || r.ProtoMajor == 3 && r.Proto == "websocket")
}

// Read implements [io.Reader].
func (t *tunnel) Read(p []byte) (int, error) {
	if !t.accepted.Load() {
		return 0, io.EOF
	}
	return t.ReadCloser.Read(p)
}

// Uploading implements [Upload].
func (t *tunnel) Uploading() bool { return true }

// Stop implements [Upload]. The stream ends with its turn.
func (t *tunnel) Stop() bool { return true }
