// Package heldbody holds the beginning of a request body, or all of it, in memory and in
// a file.
package heldbody

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Body is a request body whose beginning, or all of it, was read before the
// request took its ticket.
//
// Like a body of net/http, several goroutines may read and close it concurrently. A
// proxy's transport may still send it when the upstream has answered and another
// handler reads it. Each byte goes to one of them.
type Body struct {
	ended    bool  // rest was read to its end before the ticket
	fileSize int64 // fixed once the file is written

	mu       sync.Mutex // guards the fields below; never held while waiting for the client
	memory   []byte     // the unread part of the beginning
	file     *os.File   // the part after memory, or nil
	fileRead int64      // bytes of file that were read

	restMu sync.Mutex    // held while reading rest, but not by Close, which may end a read
	rest   io.ReadCloser // the request's original body
}

// New holds nothing of a body yet.
func New(rest io.ReadCloser) *Body { return &Body{rest: rest} }

// Ended reports whether all of the body was read before the ticket.
func (b *Body) Ended() bool { return b.ended }

// IsEmpty reports whether the body has no bytes. It is for a body that has ended, before
// the next handler reads it.
func (b *Body) IsEmpty() bool { return len(b.memory) == 0 && b.fileSize == 0 }

// InFile reports whether a part of the body is in a file.
func (b *Body) InFile() bool { return b.file != nil }

// firstRead is the first size of a body's memory, in bytes. It grows with the data
// that arrives, since a client may announce any length.
const firstRead = 4 << 10

// ReadMemory reads up to limit bytes into memory, and one more to see whether the body
// ends there. length is that of the body, if it is known.
func (b *Body) ReadMemory(limit, length int64) error {
	if length > 0 {
		limit = min(limit, length)
	}
	b.memory = make([]byte, 0, min(limit, firstRead)+1)
	for int64(len(b.memory)) <= limit {
		if len(b.memory) == cap(b.memory) {
			larger := make([]byte, len(b.memory), min(2*int64(cap(b.memory)), limit+1))
			copy(larger, b.memory)
			b.memory = larger
		}
		n, err := b.rest.Read(b.memory[len(b.memory):cap(b.memory)])
		b.memory = b.memory[:len(b.memory)+n]
		if err != nil {
			return b.endAt(err)
		}
	}
	return nil
}

// copyBuffers are the buffers for copying bodies to files.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFile reads up to limit bytes into a new file. An error of the file is a
// [serializer.StorageError].
func (b *Body) ReadFile(limit int64) error {
	file, err := newFile(os.TempDir())
	if err != nil {
		return &serializer.StorageError{Op: "making a file for a request body in", Path: os.TempDir(), Err: err}
	}
	b.file = file
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	for b.fileSize < limit {
		n, err := b.rest.Read(buffer[:min(int64(len(buffer)), limit-b.fileSize)])
		if _, err := file.WriteAt(buffer[:n], b.fileSize); err != nil {
			return &serializer.StorageError{Op: "writing a request body to a file in", Path: os.TempDir(), Err: errors.Unwrap(err)}
		}
		b.fileSize += int64(n)
		if err != nil {
			return b.endAt(err)
		}
	}
	return nil
}

// endAt notes the end of the body, which is no failure.
func (b *Body) endAt(err error) error {
	if err != io.EOF {
		return err
	}
	b.ended = true
	return nil
}

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	if n, held, err := b.readHeld(p); held {
		return n, err
	}
	if b.ended {
		return 0, io.EOF
	}
	b.restMu.Lock()
	defer b.restMu.Unlock()
	return b.rest.Read(p)
}

// readHeld reads from the part that was read before the ticket. held is false if
// nothing of it is left.
func (b *Body) readHeld(p []byte) (n int, held bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.memory) > 0:
		n = copy(p, b.memory)
		b.memory = b.memory[n:]
		return n, true, nil
	case b.fileRead < b.fileSize:
		n, err = b.readBackLocked(p)
		return n, true, err
	}
	return 0, false, nil
}

// readBackLocked reads from the file, and frees it at its end.
func (b *Body) readBackLocked(p []byte) (int, error) {
	if b.file == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.file.ReadAt(p[:min(int64(len(p)), b.fileSize-b.fileRead)], b.fileRead)
	b.fileRead += int64(n)
	if b.fileRead == b.fileSize {
		b.freeLocked()
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // the file was truncated
	}
	return n, err
}

// Close implements [io.Closer]. The part in memory can still be read, since error
// routes get the request after a proxy has closed its body.
func (b *Body) Close() error {
	b.Free()
	return b.rest.Close()
}

// Free closes the file, so that its part can no longer be read. b may be nil.
func (b *Body) Free() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freeLocked()
}

func (b *Body) freeLocked() {
	if b.file != nil {
		_ = b.file.Close() // it has no name, and is not read again
		b.file = nil
	}
}

// Failed replaces a body that could not be read completely, so that no handler takes the
// rest for the whole.
func Failed(body io.Closer, err error) io.ReadCloser { return &failedBody{body, err} }

type failedBody struct {
	io.Closer
	err error
}

// Read implements [io.Reader].
func (b *failedBody) Read([]byte) (int, error) { return 0, b.err }

// Interface guards
var (
	_ io.ReadCloser = (*Body)(nil)
	_ io.ReadCloser = (*failedBody)(nil)
)
