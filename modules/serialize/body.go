package serialize

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// readBody reads the request body before the request takes its ticket: so much
// of it in memory, more in a file. A slow or stalled upload then holds neither
// a ticket nor a turn, and net/http, which looks for a closed connection only
// once the body has been read to its end, notices when the client goes away.
//
// What does not fit in memory and file is left to be read by the next handler,
// behind what does.
func (s *Handler) readBody(w http.ResponseWriter, r *http.Request, v *visit) error {
	if !hasBody(r) || isDialogue(r) {
		return nil
	}
	if held, ok := r.Body.(*heldBody); ok && held.ended {
		return nil // a queue around this one has read it
	}
	body := &heldBody{rest: r.Body}
	if err := s.hold(body, r, v); err != nil {
		err = bodyFailure(r.Context(), v.queue, err)
		body.free()
		r.Body = &failedBody{r.Body, err}
		if r.ProtoMajor == 1 {
			// Caddy hides from net/http what of the body is still to come; it would
			// wait for the rest before it answers.
			w.Header().Set("Connection", "close")
		}
		return err
	}
	r.Body = body
	if body.file != nil || !body.ended {
		v.body = body
	}
	return nil
}

// hold reads as much of the body as is to be held.
func (s *Handler) hold(body *heldBody, r *http.Request, v *visit) (err error) {
	if *s.Buffer == 0 {
		return nil
	}
	if httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue") {
		// net/http tells the client to go on when the body is first read.
		err = s.checkRoom(v)
	}
	if err == nil {
		err = body.readMemory(int64(*s.Buffer), r.ContentLength)
	}
	if err == nil && *s.BufferDisk > 0 {
		if err = s.checkRoom(v); err == nil {
			err = body.readFile(int64(*s.BufferDisk))
		}
	}
	if err == io.EOF {
		body.ended = true
		return nil
	}
	return err
}

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// isUploading reports whether the client may still send of the body.
func isUploading(r *http.Request) bool {
	held, ok := r.Body.(*heldBody)
	return hasBody(r) && !(ok && held.ended)
}

// isDialogue reports whether client and upstream take turns to speak, so that
// the body does not come by itself.
func isDialogue(r *http.Request) bool {
	return r.Method == http.MethodConnect || isGRPC(r.Header.Get("Content-Type"))
}

// isGRPC reports whether a content type is that of gRPC, with or without the
// name of an encoding. Those of gRPC-Web are not: its clients send one message,
// then read.
func isGRPC(contentType string) bool {
	name, _, _ := strings.Cut(contentType, ";")
	name, _, _ = strings.Cut(name, "+")
	return strings.EqualFold(strings.TrimSpace(name), "application/grpc")
}

// checkRoom refuses the request where the queue is known to be full: a client
// that asks first is told before it sends its body, and no file is made for one
// that would be refused in the end.
func (s *Handler) checkRoom(v *visit) error {
	if s.QueueLength == 0 || !s.engine.acquire() {
		return nil
	}
	defer s.releaseEngine(s.engine)
	counter, ok := s.engine.Engine.(serializer.Counter)
	if !ok {
		return nil
	}
	inside, waiting := counter.Count(v.queue)
	if waiting < s.QueueLength {
		return nil
	}
	return &serializer.Refused{
		Reason: serializer.ReasonFull, Queue: v.queue, Position: inside + waiting, Err: serializer.ErrFull,
	}
}

// bodyFailure turns the error of a body into that of a request which never had
// a ticket. Where the file failed, the storage is at fault, else the client.
func bodyFailure(ctx context.Context, queue string, err error) error {
	refused := &serializer.Refused{Reason: serializer.ReasonGone, Queue: queue}
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, serializer.ErrFull):
		return err
	case errors.Is(err, serializer.ErrStorage):
		refused.Reason, refused.Err = serializer.ReasonStorage, err
		return refused
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	case ctx.Err() != nil:
		status = statusClientClosed
	}
	// An error that has a status keeps it: 413 of request_body.
	refused.Err = caddyhttp.Error(status, err)
	return refused
}

// heldBody is a request body of which the beginning, or all, has been read
// before the request took its ticket.
//
// Like a body of net/http, it may be read and closed by several goroutines at
// once: a proxy's transport may still send it when the upstream has answered
// and another handler reads it. Each byte goes to one of them.
type heldBody struct {
	ended    bool      // rest was read to its end before the ticket
	fileSize int64     // fixed once the file is written
	upstream *upstream // that gets the rest; nil where nobody asks

	mu       sync.Mutex // guards what is held; never locked while the client is waited for
	memory   []byte     // what of the beginning has not been handed on
	file     *os.File   // what comes after memory, or nil
	fileRead int64      // handed on

	restMu sync.Mutex    // locked by who reads rest, but not by Close, which may end a read
	rest   io.ReadCloser // as the request had it
}

// firstRead is how much memory a body has at first. It grows with what comes,
// for a client may announce any length.
const firstRead = 4 << 10

// readMemory reads up to limit bytes, and the next one to see whether the body
// ends there. At its end, the error is io.EOF.
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

// copyBuffers are what bodies pass through on their way to a file.
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
	return b.readRest(p)
}

// readHeld reads what came before the ticket, and reports whether any of it was
// left.
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
		err = io.ErrUnexpectedEOF // somebody has cut the file short
	}
	return n, err
}

// Close implements [io.Closer]. What is in memory can still be read: error routes
// get the request after a proxy that has closed its body, also where there was
// nothing in it.
func (b *heldBody) Close() error {
	b.free()
	return b.rest.Close()
}

// free gives the file back. What is left of the body can no longer be read. It
// may be called for no body.
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
		_ = b.file.Close() // it has no name, and nobody reads it again
		b.file = nil
	}
}

// freeWith gives the file back when a context is done.
func (b *heldBody) freeWith(ctx context.Context) {
	if b != nil {
		context.AfterFunc(ctx, b.free)
	}
}

// failedBody is the body of a request whose own was lost half-way: nobody must
// take the rest of it for the whole.
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
