package orderly

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// outlivingWriter writes the response for as long as there is a client, and
// then swallows the rest. What is behind runs on to its end, as if somebody
// still listened: only then is the place really free.
type outlivingWriter struct {
	caddyhttp.ResponseWriterWrapper
	stay context.Context
	ends bool // the request, with its client; then nothing outlives anything
	gone atomic.Bool

	unanswered bool // the response was left to the queue
}

// WriteHeader implements [http.ResponseWriter]. A handler that was cancelled
// takes it that its client is gone, and reverse_proxy says so. Where it was the
// queue that ended the stay, the client is there and gets the queue's answer.
func (w *outlivingWriter) WriteHeader(status int) {
	if status == statusClientClosed && cutsShort(context.Cause(w.stay)) {
		w.unanswered = true
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *outlivingWriter) Write(p []byte) (int, error) {
	if w.gone.Load() {
		return len(p), nil
	}
	n, err := w.ResponseWriter.Write(p)
	if w.outlived(err) {
		return len(p), nil
	}
	return n, err
}

// ReadFrom implements [io.ReaderFrom].
func (w *outlivingWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.gone.Load() {
		return io.Copy(io.Discard, r)
	}
	n, err := w.ResponseWriterWrapper.ReadFrom(r)
	if !w.outlived(err) {
		return n, err
	}
	// If it was reading that failed, it fails again.
	more, err := io.Copy(io.Discard, r)
	return n + more, err
}

// FlushError is what [http.ResponseController] looks for.
func (w *outlivingWriter) FlushError() error {
	if w.gone.Load() {
		return nil
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if w.outlived(err) {
		return nil
	}
	return err
}

// outlived reports whether an error means that the client is gone, or as good
// as gone.
func (w *outlivingWriter) outlived(err error) bool {
	if err == nil || w.ends || errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrContentLength) ||
		errors.Is(err, http.ErrHijacked) || errors.Is(err, http.ErrNotSupported) {
		return false
	}
	w.gone.Store(true)
	return true
}

// Interface guards
var (
	_ http.ResponseWriter = (*outlivingWriter)(nil)
	_ io.ReaderFrom       = (*outlivingWriter)(nil)
)
