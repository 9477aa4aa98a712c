package requestbody

import (
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// Upload is a body that the next handlers read while they hold the turn. Nil is one of which
// nothing is to come.
type Upload struct {
	io.ReadCloser
	failure atomic.Pointer[error] // of a read before the turn, or nil
	reading sync.Mutex            // held by a read
	read    atomic.Int64          // how many bytes
	ended   atomic.Bool
	stopped atomic.Bool
}

// UploadOf returns what is known of the body of a request.
func UploadOf(r *http.Request) *Upload {
	if _, whole := r.Body.(*Body); whole || None(r) {
		return nil
	}
	u, known := r.Body.(*Upload)
	if !known {
		u = &Upload{ReadCloser: r.Body}
		r.Body = u
	}
	return u
}

// Read implements [io.Reader].
func (u *Upload) Read(p []byte) (int, error) {
	if failure := u.failure.Load(); failure != nil {
		return 0, *failure
	}
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.stopped.Load() { // or an error route would take the rest for the whole
		return 0, os.ErrDeadlineExceeded
	}
	n, err := u.ReadCloser.Read(p)
	u.read.Add(int64(n))
	if err == io.EOF {
		u.ended.Store(true)
	}
	return n, err
}

// Uploading reports whether the client may still send a part.
func (u *Upload) Uploading() bool { return u != nil && !u.ended.Load() }

// Stop lets no more of the body be read. It reports whether no read is under way.
func (u *Upload) Stop() bool {
	u.stopped.Store(true)
	if !u.reading.TryLock() {
		return false
	}
	u.reading.Unlock()
	return true
}

// Unread reports whether the body of an HTTP/1 request is still to be read.
func Unread(r *http.Request) bool { return r.ProtoMajor == 1 && UploadOf(r).Uploading() }

// EndConnection ends the connection of a request after its answer, if a part of its body is
// still to be read.
func EndConnection(w http.ResponseWriter, r *http.Request) {
	if Unread(r) {
		CloseAfterAnswer(w)
	}
}

// Unwrapped is net/http's own writer to a client, below all wrappers of Caddy.
func Unwrapped(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// CloseAfterAnswer lets net/http close an HTTP/1 connection after the answer. It does not wait for
// the rest of the body before it answers. Caddy hides from it how much that is. Nor does it
// close at once when it has answered: a client that still sends would get a reset, and many
// never read the answer then. It does so as if a limit of the body had been passed.
func CloseAfterAnswer(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	pastLimit := http.MaxBytesReader(Unwrapped(w), io.NopCloser(strings.NewReader("x")), 0)
	_, _ = pastLimit.Read(make([]byte, 1))
}
