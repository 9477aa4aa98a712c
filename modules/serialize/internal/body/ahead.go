package body

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
)

// Watch reads a body that streams ahead while its request waits. net/http notices that an
// HTTP/1 client has hung up by reading from its connection, which it does only after the
// body has been read to its end. The context that Watch returns is the one in which the
// request waits, and also ends when the client hangs up within the first 64 KiB of the
// body. stop ends the reading ahead; the handlers then read what is there, and the rest
// from the client. The request has to be a copy of the server's own, as it is in Caddy.
func Watch(waiting context.Context, r *http.Request) (ctx context.Context, stop func()) {
	if _, read := r.Body.(*Body); read || r.ProtoMajor != 1 || None(r) {
		return waiting, func() {}
	}
	ctx, cancel := context.WithCancelCause(waiting)
	// The goroutine may be reading while the handlers run, and net/http then writes the
	// trailers into a map that they would be reading.
	a := &ahead{ReadCloser: r.Body, request: r.Context(), sent: r.Trailer, trailer: maps.Clone(r.Trailer), reading: true}
	a.arrived.L = &a.mu
	r.Body, r.Trailer = a, a.trailer
	go a.read(cancel)
	return ctx, a.stop
}

// maxAhead is how much of a body is read ahead, in bytes.
const maxAhead = 64 << 10

// ahead is a body of which the beginning is read ahead.
type ahead struct {
	io.ReadCloser // the client's
	request       context.Context
	sent, trailer http.Header // the trailers: as net/http writes them, and the handlers'

	mu      sync.Mutex
	arrived sync.Cond // data, or the end of reading ahead
	data    []byte
	err     error
	reading bool // by the goroutine, which may be waiting for the client
	stopped bool
}

// read reads ahead until it is stopped, has read enough, or the body has ended.
func (a *ahead) read(gone context.CancelCauseFunc) {
	chunk := make([]byte, 4<<10)
	for reading := true; reading; {
		n, err := a.readClient(chunk)
		a.mu.Lock()
		a.data, a.err = append(a.data, chunk[:n]...), err
		a.reading = err == nil && !a.stopped && len(a.data) < maxAhead
		reading = a.reading
		a.arrived.Broadcast()
		a.mu.Unlock()
		if err != nil && err != io.EOF {
			gone(failure(a.request, err))
		}
	}
}

// readClient reads from the client, in the goroutine. The handlers may have returned by
// then. With Caddy's enable_full_duplex, net/http reads the next request beside it, finds
// the two, and panics, which must not end the process.
func (a *ahead) readClient(p []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			err = io.ErrUnexpectedEOF
		}
	}()
	return a.ReadCloser.Read(p)
}

// stop lets the goroutine finish what it is reading.
func (a *ahead) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
}

// Read implements [io.Reader]. What the goroutine is reading comes first.
func (a *ahead) Read(p []byte) (int, error) {
	a.mu.Lock()
	for len(a.data) == 0 && a.reading {
		a.arrived.Wait()
	}
	if len(a.data) > 0 {
		n := copy(p, a.data)
		a.data = a.data[n:]
		a.mu.Unlock()
		return n, nil
	}
	n, err := 0, a.err
	a.mu.Unlock()
	if err == nil {
		n, err = a.ReadCloser.Read(p)
		a.mu.Lock()
		a.err = err
		a.mu.Unlock()
	}
	if err == io.EOF {
		maps.Copy(a.trailer, a.sent)
		a.sent = nil
	}
	return n, err
}

// uploading reports whether the body has not been read to its end.
func (a *ahead) uploading() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != io.EOF
}

// Uploading returns a function that reports whether the client of a streaming body may
// still send a part of it, or nil if there is no such body.
func Uploading(r *http.Request) func() bool {
	switch streamed := r.Body.(type) {
	case *ahead:
		return streamed.uploading
	case *Body:
		return nil
	}
	if None(r) {
		return nil
	}
	return func() bool { return true }
}
