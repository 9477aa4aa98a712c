package serialize

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/heldbody"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// readBody reads the request body before the request takes its ticket: first into
// memory, then into a file. So a slow or stalled upload holds neither a ticket nor a
// turn. Also, net/http notices a closed connection only after the body has been read
// to its end.
//
// The next handler reads the rest of a body that does not fit.
func (s *Handler) readBody(w http.ResponseWriter, r *http.Request, v *visit) error {
	if !hasBody(r) || isDialogue(r) {
		return nil
	}
	if held, ok := r.Body.(*heldbody.Body); ok && held.Ended() {
		return nil // an outer queue has read it
	}
	body := heldbody.New(r.Body)
	if err := s.bufferBody(body, r, v); err != nil {
		err = bodyFailure(r.Context(), v.queue, err)
		body.Free()
		r.Body = heldbody.Failed(r.Body, err)
		if r.ProtoMajor == 1 {
			// Caddy hides the length of the remaining body from net/http, which would
			// wait for the rest before it answers.
			w.Header().Set("Connection", "close")
		}
		return err
	}
	r.Body = body
	if body.InFile() || !body.Ended() {
		v.body = body
	}
	return nil
}

// bufferBody reads as much of the body as the settings say.
func (s *Handler) bufferBody(body *heldbody.Body, r *http.Request, v *visit) error {
	if *s.Buffer == 0 {
		return nil
	}
	if httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue") {
		// net/http asks the client to continue when the body is first read.
		if err := s.checkRoom(v); err != nil {
			return err
		}
	}
	if err := body.ReadMemory(int64(*s.Buffer), r.ContentLength); err != nil || body.Ended() || *s.BufferDisk == 0 {
		return err
	}
	if err := s.checkRoom(v); err != nil {
		return err
	}
	return body.ReadFile(int64(*s.BufferDisk))
}

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// isUploading reports whether the client may still send parts of the body.
func isUploading(r *http.Request) bool {
	held, ok := r.Body.(*heldbody.Body)
	return hasBody(r) && !(ok && held.Ended())
}

// isDialogue reports whether the client may send the body only in reply to the
// upstream.
func isDialogue(r *http.Request) bool {
	return r.Method == http.MethodConnect || isGRPC(r.Header.Get("Content-Type"))
}

// isGRPC reports whether a content type is that of gRPC, with or without the name of
// an encoding. gRPC-Web does not count, since its clients send one message and then
// read.
func isGRPC(contentType string) bool {
	name, _, _ := strings.Cut(contentType, ";")
	name, _, _ = strings.Cut(name, "+")
	return strings.EqualFold(strings.TrimSpace(name), "application/grpc")
}

// checkRoom refuses the request if the queue is known to be full. So a client that
// asks first does not send its body in vain, and no file is made for it.
func (s *Handler) checkRoom(v *visit) error {
	if s.QueueLength == 0 || s.WhenFull == dropOldest || !s.engine.acquire() {
		return nil
	}
	defer s.releaseEngine(s.engine)
	inside, waiting := s.engine.Count(v.queue)
	if waiting < s.QueueLength {
		return nil
	}
	return &serializer.Refused{
		Reason: serializer.ReasonFull, Queue: v.queue, Position: inside + waiting, Err: serializer.ErrFull,
	}
}

// bodyFailure turns the error of a body into a refusal before the ticket. If the file
// failed, the reason is the storage, otherwise the client.
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
		status = response.StatusClientClosed
	}
	// caddyhttp.Error keeps the status of an error that has one, such as 413.
	refused.Err = caddyhttp.Error(status, err)
	return refused
}
