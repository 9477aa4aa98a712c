package body

import (
	"io"
	"net/http"
	"sync/atomic"
)

// streamed is a body that the next handlers read while they hold the turn.
type streamed struct {
	io.ReadCloser
	ended atomic.Bool
}

// Read implements [io.Reader].
func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err == io.EOF {
		s.ended.Store(true)
	}
	return n, err
}

func (s *streamed) uploading() bool { return !s.ended.Load() }

// Uploading reports whether the client may still send a part of the body.
func Uploading(r *http.Request) bool {
	switch known := r.Body.(type) {
	case *Body:
		return false
	case *streamed:
		return known.uploading()
	}
	return !None(r)
}

// Stream returns a function that goes on to report [Uploading] while handlers read the body,
// or nil if nothing is left to read.
func Stream(r *http.Request) (uploading func() bool) {
	if !Uploading(r) {
		return nil
	}
	if isWebSocket(r) {
		return func() bool { return true }
	}
	s, ok := r.Body.(*streamed) // of an outer queue
	if !ok {
		s = &streamed{ReadCloser: r.Body}
		r.Body = s
	}
	return s.uploading
}
