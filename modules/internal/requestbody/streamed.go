package requestbody

import (
	"io"
	"net/http"
	"os"
	"strings"
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
	begun   atomic.Bool
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
	s.begun.Store(true)
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

// EndConnection ends the connection of a request after its answer, if a part of its body is
// still to be read.
func EndConnection(w http.ResponseWriter, r *http.Request) {
	if Unread(r) {
		CloseAfterAnswer(w)
	}
}

// CloseAfterAnswer lets net/http close an HTTP/1 connection after the answer. It does not wait for
// the rest of the body before it answers. Caddy hides from it how much that is. Nor does it
// close at once when it has answered: a client that still sends would get a reset, and many
// never read the answer then. It does so as if a limit of the body had been passed.
func CloseAfterAnswer(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = outer.Unwrap()
	}
	pastLimit := http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0)
	_, _ = pastLimit.Read(make([]byte, 1))
}

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
