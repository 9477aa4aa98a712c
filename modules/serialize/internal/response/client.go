package response

import (
	"context"
	"errors"
	"net/http"
)

// onClient does what may block on the client, unless the turn is revoked.
func (w *Writer) onClient(write func() error) error {
	w.busy.Add(1) // before revoked is read; see interrupt
	defer w.busy.Add(-1)
	if w.revoked.Load() {
		return errStopped
	}
	err := write()
	if isClientGone(err) && w.revoked.Load() {
		return errStopped
	}
	return err
}

// isClientGone reports whether an error of writing means that the client is gone,
// or as good as gone.
func isClientGone(err error) bool {
	return err != nil && !errors.Is(err, http.ErrBodyNotAllowed) && !errors.Is(err, http.ErrContentLength) &&
		!errors.Is(err, http.ErrHijacked) && !errors.Is(err, http.ErrNotSupported)
}

// outlives reports whether the handlers need not know of an error, because they
// run on without their client.
func (w *Writer) outlives(err error) bool {
	if !isClientGone(err) || w.ends || errors.Is(err, errStopped) {
		return false
	}
	w.gone = true
	return true
}

// explain names the cause of an error if the turn was revoked.
func (w *Writer) explain(err error) error {
	if !errors.Is(err, errStopped) {
		return err
	}
	w.refused = true
	if cause := context.Cause(w.turn); cause != nil {
		return cause
	}
	return context.Canceled // the client has hung up just now
}

// Innermost is the response writer below all wrappers. Those of Caddy would
// cut a deadline down to one that has passed.
func Innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// StatusClientClosed is recorded for a client that has gone, as by nginx and by
// Caddy's reverse proxy.
const StatusClientClosed = 499
