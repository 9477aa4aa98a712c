package requestbody

import (
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

// Upload is a body that knows whether the client may still send a part of it. Handlers may
// read it meanwhile.
type Upload interface {
	// Uploading reports whether the client may still send a part.
	Uploading() bool

	// Stop lets no more of the body be read. It reports whether no read is under way.
	Stop() bool
}

// streamed is a body that the next handlers read while they hold the turn.
type streamed struct {
	io.ReadCloser
	reading sync.Mutex // held by a read
	ended   atomic.Bool
	stopped atomic.Bool
}

// Read implements [io.Reader].
func (s *streamed) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.stopped.Load() { // or an error route would take the rest for the whole
		return 0, os.ErrDeadlineExceeded
	}
	n, err := s.ReadCloser.Read(p)
	if err == io.EOF {
		s.ended.Store(true)
	}
	return n, err
}

// Uploading implements [Upload].
func (s *streamed) Uploading() bool { return !s.ended.Load() }

// Stop implements [Upload].
func (s *streamed) Stop() bool {
	s.stopped.Store(true)
	if !s.reading.TryLock() {
		return false
	}
	s.reading.Unlock()
	return true
}

// complete is a body of which nothing is to come.
type complete struct{}

// Uploading implements [Upload].
func (complete) Uploading() bool { return false }

// Stop implements [Upload].
func (complete) Stop() bool { return true }

// Unread reports whether the body of an HTTP/1 request is still to be read.
func Unread(r *http.Request) bool { return r.ProtoMajor == 1 && UploadOf(r).Uploading() }

// UploadOf returns what is known of the body of a request.
func UploadOf(r *http.Request) Upload {
	if known, ok := r.Body.(Upload); ok {
		return known
	}
	if None(r) {
		return complete{}
	}
	s := &streamed{ReadCloser: r.Body}
	r.Body = s
	return s
}
