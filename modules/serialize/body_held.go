package serialize

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// heldBody is a request body whose beginning, or all of it, was read before the
// request took its ticket.
//
// Like a body of net/http, several goroutines may read and close it concurrently. A
// proxy's transport may still send it when the upstream has answered and another
// handler reads it. Each byte goes to one of them.
type heldBody struct {
	ended    bool  // rest was read to its end before the ticket
	fileSize int64 // fixed once the file is written

	mu       sync.Mutex // guards the fields below; never held while waiting for the client
	memory   []byte     // the unread part of the beginning
	file     *os.File   // the part after memory, or nil
	fileRead int64      // bytes of file that were read

	restMu sync.Mutex    // held while reading rest, but not by Close, which may end a read
	rest   io.ReadCloser // the request's original body
}

// firstRead is the first size of a body's memory, in bytes. It grows with the data
// that arrives, since a client may announce any length.
const firstRead = 4 << 10

// readMemory reads up to limit bytes, and one more to see whether the body ends
// there. At the end of the body, the error is io.EOF.
func (b *heldBody) readMemory(limit, length int64) error {
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
			return err
		}
	}
	return nil
}

// copyBuffers are the buffers for copying bodies to files.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// readFile reads up to limit bytes into a new file. At the end of the body, the
// error is io.EOF.
func (b *heldBody) readFile(limit int64) error {
	file, err := newBodyFile(os.TempDir())
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
			return err
		}
	}
	return nil
}

// Read implements [io.Reader].
func (b *heldBody) Read(p []byte) (int, error) {
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
func (b *heldBody) readHeld(p []byte) (n int, held bool, err error) {
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
func (b *heldBody) readBackLocked(p []byte) (int, error) {
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
func (b *heldBody) Close() error {
	b.free()
	return b.rest.Close()
}

// free closes the file, so that its part can no longer be read. b may be nil.
func (b *heldBody) free() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freeLocked()
}

func (b *heldBody) freeLocked() {
	if b.file != nil {
		_ = b.file.Close() // it has no name, and is not read again
		b.file = nil
	}
}

// freeWith closes the file when a context is done.
func (b *heldBody) freeWith(ctx context.Context) {
	if b != nil {
		context.AfterFunc(ctx, b.free)
	}
}

// failedBody replaces a body that could not be read completely, so that no handler
// takes the rest for the whole.
type failedBody struct {
	io.Closer
	err error
}

// Read implements [io.Reader].
func (b *failedBody) Read([]byte) (int, error) { return 0, b.err }

// Interface guards
var (
	_ io.ReadCloser = (*heldBody)(nil)
	_ io.ReadCloser = (*failedBody)(nil)
)
