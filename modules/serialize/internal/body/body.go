// Package body reads a request body before its request takes a ticket. So a slow or
// stalled upload holds neither a ticket nor a turn. Also, net/http notices that a client
// has gone only after the body was read to its end.
package body

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	io.Closer // of the client's body
	size      int64

	mu     sync.Mutex // guards what follows
	memory []byte
	file   *os.File // nil if there is none, or after Free
	read   int64
}

// Limits are how many bytes of a body are read into memory, and then into a file.
type Limits struct{ Memory, Disk int64 }

// Why a body could not be read, if it was not the client.
var (
	ErrTooLarge = errors.New("the request body is too large")
	ErrFile     = errors.New("the file failed") // its error names the directory
)

// Read reads the body of a request, and replaces it by what was read. It returns nil if
// there is nothing to read. The length that is announced and the framing stay as they
// are, and trailers are there.
//
// An error has a status for the client.
func Read(w http.ResponseWriter, r *http.Request, limits Limits) (*Body, error) {
	if None(r) || isWebSocket(r) {
		return nil, nil
	}
	if _, ok := r.Body.(*Body); ok {
		return nil, nil // an outer queue has read it
	}
	b := &Body{Closer: r.Body}
	b.mu.Lock() // nobody else has it yet
	err := b.fillLocked(r, limits)
	b.mu.Unlock()
	if err == nil {
		r.Body = b
		return b, nil
	}
	b.Free()
	err = failure(r.Context(), err)
	r.Body = failed{r.Body, err}
	if r.ProtoMajor == 1 {
		// Caddy hides the length of the rest from net/http, which would wait for it before
		// it answers.
		w.Header().Set("Connection", "close")
	}
	return nil, err
}

// None reports whether a request has no body. Over HTTP/2 and HTTP/3, one whose length is
// said to be 0, or is no number, may not have ended yet.
func None(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.ProtoMajor == 1 && r.ContentLength == 0
}

// failure gives an error a status, unless it has one, such as that of request_body.
func failure(ctx context.Context, err error) error {
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrFile):
		status = http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	case ctx.Err() != nil:
		status = 499 // as nginx and Caddy's proxy record a client that has gone
	}
	return caddyhttp.Error(status, err)
}

// fillLocked reads the client's body.
func (b *Body) fillLocked(r *http.Request, limits Limits) error {
	if r.ContentLength > limits.Memory+limits.Disk {
		return fmt.Errorf("%w: it has %d bytes", ErrTooLarge, r.ContentLength)
	}
	ended, err := b.fillMemoryLocked(r, limits.Memory)
	if !ended && err == nil && limits.Disk > 0 {
		ended, err = true, b.fillFileLocked(r.Body, limits.Disk)
	}
	if err == nil && (!ended || b.size > limits.Memory+limits.Disk) {
		return ErrTooLarge
	}
	return err
}

// firstRead is the first size of a body's memory. It grows with what comes, since a
// client may announce any length.
const firstRead = 4 << 10

// fillMemoryLocked reads up to limit bytes, and one more to see whether the body ends there.
func (b *Body) fillMemoryLocked(r *http.Request, limit int64) (ended bool, err error) {
	if r.ContentLength >= 0 {
		limit = min(limit, r.ContentLength)
	}
	b.memory = make([]byte, 0, min(limit, firstRead)+1)
	for int64(len(b.memory)) <= limit {
		if len(b.memory) == cap(b.memory) {
			larger := make([]byte, len(b.memory), min(2*int64(cap(b.memory)), limit+1))
			copy(larger, b.memory)
			b.memory = larger
		}
		n, err := r.Body.Read(b.memory[len(b.memory):cap(b.memory)])
		b.memory = b.memory[:len(b.memory)+n]
		b.size = int64(len(b.memory))
		if err != nil {
			return err == io.EOF, unlessEOF(err)
		}
	}
	return false, nil
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// fillFileLocked reads up to limit bytes into a file.
func (b *Body) fillFileLocked(from io.Reader, limit int64) (err error) {
	if b.file, err = os.CreateTemp("", "orderly-body-*"); err != nil {
		return fmt.Errorf("making a file for a request body in %s: %w: %w", os.TempDir(), ErrFile, err)
	}
	_ = os.Remove(b.file.Name()) // so that a crash leaves nothing; Windows cannot before it is closed
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	for written := int64(0); written < limit; {
		n, err := from.Read(buffer[:min(int64(len(buffer)), limit-written)])
		if _, failed := b.file.WriteAt(buffer[:n], written); failed != nil {
			return fmt.Errorf("writing a request body to a file in %s: %w: %w", os.TempDir(), ErrFile, errors.Unwrap(failed))
		}
		written += int64(n)
		b.size += int64(n)
		if err != nil {
			return unlessEOF(err)
		}
	}
	return ErrTooLarge
}

// unlessEOF returns an error that is not the end of the body.
func unlessEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// Empty reports whether the body has no bytes. b may be nil.
func (b *Body) Empty() bool { return b == nil || b.size == 0 }

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	inMemory := int64(len(b.memory))
	switch {
	case b.read == b.size:
		return 0, io.EOF
	case b.read < inMemory:
		n := copy(p, b.memory[b.read:])
		b.read += int64(n)
		return n, nil
	case b.file == nil:
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.file.ReadAt(p[:min(int64(len(p)), b.size-b.read)], b.read-inMemory)
	b.read += int64(n)
	if err == io.EOF && b.read < b.size {
		return n, io.ErrUnexpectedEOF // the file was truncated
	}
	return n, unlessEOF(err)
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
		_ = os.Remove(b.file.Name())
		b.file = nil
	}
}

// failed replaces a body that could not be read, so that no handler takes the rest for
// the whole.
type failed struct {
	io.Closer
	err error
}

// Read implements [io.Reader].
func (f failed) Read([]byte) (int, error) { return 0, f.err }

// Interface guards
var (
	_ io.ReadCloser = (*Body)(nil)
	_ io.ReadCloser = failed{}
)
