// Package requestbody reads a request body before its request takes a ticket. So a slow or
// stalled upload holds neither a ticket nor a turn. Also, net/http notices that a client
// has gone only after the body was read to its end.
package requestbody

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Body is a request body that was read to its end. Its beginning is in memory, the rest
// in a file without a name.
//
// Like a body of net/http, several goroutines may read it and free it. A proxy's
// transport may still send it when another handler reads it, or when the turn is over.
// So its memory is not used again.
type Body struct {
	client io.Closer        // the client's body
	part   io.LimitedReader // of it that is being read
	size   int64

	mu       sync.Mutex // guards what follows, of which what was read is gone
	read     int64      // how many bytes
	isCut    bool       // the rest cannot be read
	memory   bytes.Buffer
	file     *os.File // nil if there is none
	unlinked bool     // the file has no name any more
	sum      []byte   // of all, if it was asked for
}

// Limits are how many bytes of a body are read into memory, and then into a file.
type Limits struct{ Memory, Disk int64 }

// check returns an error if a body of a length is too large.
func (l Limits) check(length int64) error {
	if length > l.Memory+l.Disk {
		return fmt.Errorf("%w: it has %d bytes", ErrTooLarge, length)
	}
	return nil
}

// Why a body could not be read, if it was not the client.
var (
	ErrTooLarge = errors.New("the request body is too large")
	ErrFile     = errors.New("the file failed") // its error names the directory
	errConsumed = errors.New("another handler has read a part of the request body, and the rest is not the request")
)

// Read reads the body of a request, and replaces it by what was read. It returns nil if
// there is nothing to read. The length is known then, and trailers are there.
//
// An error has a status for the client.
func Read(r *http.Request, limits Limits) (*Body, error) {
	if None(r) {
		return nil, nil
	}
	if outer, ok := r.Body.(*Body); ok { // an outer queue has read it
		if err := errors.Join(limits.check(outer.size), outer.checkWhole()); err != nil {
			return nil, failure(r.Context(), err)
		}
		return nil, nil
	}
	b := &Body{client: r.Body}
	b.mu.Lock() // nobody else has it yet
	err := b.fillLocked(r, limits)
	b.mu.Unlock()
	if err == nil {
		r.Body = b
		announce(r, b.size)
		return b, nil
	}
	b.Free()
	err = failure(r.Context(), err)
	UploadOf(r).failure.Store(&err) // or a handler would take the rest for the whole
	return nil, err
}

// RefuseIncremental returns an error if the client wants the body to be forwarded while it
// comes: one that is read before does not. That of a tunnel or a WebSocket over HTTP/2 or HTTP/3 does
// not end before.
func RefuseIncremental(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodConnect && r.ProtoMajor > 1 {
		return caddyhttp.Error(http.StatusNotImplemented, errors.New("a tunnel or a WebSocket over HTTP/2 or HTTP/3 needs `buffer off`, and `response_buffer 0`"))
	}
	if len(r.Header["Incremental"]) == 0 || !caddyhttp.IsIncremental(r.Header) {
		return nil
	}
	w.Header().Set("Proxy-Status", "orderly; error=incremental_refused") // RFC 10036, section 3.1
	EndConnection(w, r)
	return caddyhttp.Error(http.StatusServiceUnavailable,
		errors.New("the request asks for incremental forwarding, which a queue does only with `buffer off`"))
}

// announce gives a request the length of its body, if that came without one: in chunks, or
// over HTTP/2 and HTTP/3. PHP and CGI need it.
func announce(r *http.Request, length int64) {
	r.TransferEncoding = nil
	if r.ContentLength == length {
		return
	}
	r.ContentLength = length
	if length > 0 || r.Header.Get("Content-Length") != "" { // a GET over HTTP/3 gets none
		r.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
}

// None reports whether a request has no body. Over HTTP/2 and HTTP/3, one whose length is
// said to be 0, or is no number, may not have ended yet.
func None(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.ProtoMajor == 1 && r.ContentLength == 0
}

// StatusClientClosed is the status of a request whose client has gone. Only the access log
// shows it. It is that of nginx and of Caddy's proxy.
const StatusClientClosed = 499

// failure gives an error a status, unless it has one, such as that of request_body.
func failure(ctx context.Context, err error) error {
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrFile):
		status = http.StatusServiceUnavailable
	case errors.Is(err, errConsumed):
		status = http.StatusBadGateway
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	case ctx.Err() != nil:
		status = StatusClientClosed
	}
	return caddyhttp.Error(status, err)
}

// fillLocked reads the client's body.
func (b *Body) fillLocked(r *http.Request, limits Limits) error {
	if err := limits.check(r.ContentLength); err != nil {
		return err
	}
	err := b.fillMemoryLocked(r, limits.Memory)
	if err == nil && b.size > limits.Memory && limits.Disk > 0 {
		b.part.N = limits.Disk
		err = b.fillFileLocked()
	}
	upload, streamed := r.Body.(*Upload)
	switch {
	case err == nil && b.size > limits.Memory+limits.Disk:
		return ErrTooLarge
	case err == nil && (streamed && b.size != upload.read.Load() || r.ContentLength >= 0 && b.size != r.ContentLength):
		return errConsumed
	}
	return err
}

// firstRead is the first size of a body's memory. It grows with what comes, since a
// client may announce any length.
const firstRead = 4 << 10

// fillMemoryLocked reads up to limit bytes, and one more to see whether the body ends there.
func (b *Body) fillMemoryLocked(r *http.Request, limit int64) error {
	first := min(limit, firstRead)
	if r.ContentLength >= 0 {
		first = min(first, r.ContentLength)
	}
	b.memory.Grow(int(first) + bytes.MinRead)
	b.part = io.LimitedReader{R: r.Body, N: limit + 1}
	_, err := b.memory.ReadFrom(&b.part)
	b.size = int64(b.memory.Len())
	return err
}

// fillFileLocked reads the rest into a file.
func (b *Body) fillFileLocked() (err error) {
	if b.file, err = os.CreateTemp("", "orderly-body-*"); err != nil {
		return fmt.Errorf("making a file for a request body in %s: %w: %w", os.TempDir(), ErrFile, err)
	}
	b.unlinked = os.Remove(b.file.Name()) == nil // so that a crash leaves nothing; Windows cannot before it is closed
	written, err := io.Copy(struct{ io.Writer }{b.file}, &b.part)
	b.size += written
	if err == nil {
		_, err = b.file.Seek(0, io.SeekStart)
	}
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("writing a request body to a file in %s: %w: %w", os.TempDir(), ErrFile, failed.Err)
	}
	return err
}

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isCut {
		return 0, errConsumed
	}
	from := io.Reader(&b.memory)
	if b.memory.Len() == 0 && b.file != nil {
		from = b.file
	}
	n, err := from.Read(p)
	b.read += int64(n)
	return n, err
}

// Close implements [io.Closer]. A body that was not read, or to its end, stays as it is: another
// handler may read it, such as a proxy that did not reach its upstream before.
func (b *Body) Close() error {
	b.cut()
	return b.client.Close()
}

// cut lets nobody read the rest of a body of which a part was read. Another handler would announce the
// whole length, and its upstream would wait for it.
func (b *Body) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isCut = b.isPartLocked()
}

// isPartLocked reports whether only a part was read. A body that was read to its end is empty.
func (b *Body) isPartLocked() bool { return b.read > 0 && b.read < b.size }

// checkWhole returns an error for a body of which a part was read.
func (b *Body) checkWhole() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isPartLocked() {
		return errConsumed
	}
	return nil
}

// Sum is the SHA-256 of the body of a request, which [Read] has read. It is made when it is first
// asked for: before anybody else reads the body.
func Sum(r *http.Request) ([]byte, error) {
	b, ok := r.Body.(*Body)
	if !ok {
		b = new(Body) // there is none
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sum != nil {
		return b.sum, nil
	}
	if b.read > 0 {
		return nil, failure(r.Context(), errConsumed)
	}
	hash := sha256.New()
	hash.Write(b.memory.Bytes())
	if b.file != nil {
		if _, err := io.Copy(hash, io.NewSectionReader(b.file, 0, b.size)); err != nil {
			return nil, caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("reading a request body from a file: %w: %w", ErrFile, err))
		}
	}
	b.sum = hash.Sum(nil)
	return b.sum, nil
}

// FreeAfter is called when the handlers have returned. It frees the body when the request has been
// answered, which ends the context: error routes may read it, too, unless the handlers have read a part. If
// the context has ended already, the client has hung up, and nothing says when the request is over. Then
// the garbage collector closes a file that has no name. b may be nil.
func (b *Body) FreeAfter(request context.Context) {
	if b == nil {
		return
	}
	b.cut()
	if request.Err() == nil || !b.unlinked {
		context.AfterFunc(request, b.Free)
	}
}

// Free closes the file, so that it is gone. What is in memory can still be read. b may
// be nil.
func (b *Body) Free() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		_ = b.file.Close()
		if !b.unlinked {
			_ = os.Remove(b.file.Name())
		}
	}
}
