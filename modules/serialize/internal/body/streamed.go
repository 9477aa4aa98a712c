package body

import (
	"io"
	"net/http"
	"sync/atomic"
)

// upload is a body that knows whether the client may still send a part of it.
type upload interface{ uploading() bool }

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

// Unread reports whether the body of an HTTP/1 request is still to be read.
func Unread(r *http.Request) bool { return r.ProtoMajor == 1 && Uploading(r)() }

// Uploading returns a function that reports whether the client may still send a part of the
// body. Handlers may read that meanwhile.
func Uploading(r *http.Request) func() bool {
	if known, ok := r.Body.(upload); ok {
		return known.uploading
	}
	if None(r) {
		return func() bool { return false }
	}
	s := &streamed{ReadCloser: r.Body}
	r.Body = s
	return s.uploading
}
