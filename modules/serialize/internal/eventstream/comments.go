// Package eventstream answers a client that waits with an event stream of comments. So
// neither the client nor a proxy in between gives up. Afterwards, the upstream's own event
// stream follows, and anything else becomes one event.
package eventstream

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// MediaType is that of an event stream.
const MediaType = "text/event-stream"

// Stream is the response writer of one request. Until the first comment, it changes nothing.
// From then on, the client has a head, and the handlers get a header that nobody sends.
type Stream struct {
	Begun   bool // the client has got a comment
	Follows bool // after comments, it gets the upstream's event stream

	w       http.ResponseWriter // to the client
	header  http.Header         // of the handlers; that of w until the first comment
	failure error               // of which the client has got the event that ends the stream
}

// New makes the stream of a request.
func New(w http.ResponseWriter) *Stream { return &Stream{w: w, header: w.Header()} }

// writeTime is how long a comment may take to be written. A client that reads none must not
// keep its request from taking its turn, which may come meanwhile.
const writeTime = time.Second

// Comment sends a comment. The first one comes with the head of the response. The upstream must not encode
// what follows, or change to another protocol, so the request loses its Accept-Encoding and Upgrade.
func (s *Stream) Comment(r *http.Request, text string) error {
	client := http.NewResponseController(s.w)
	_ = client.SetWriteDeadline(time.Now().Add(writeTime)) // an error: there are none
	if !s.Begun {
		header := s.header
		s.header, s.Begun = header.Clone(), true
		header.Set("Content-Type", MediaType)
		header.Set("Cache-Control", "no-store, no-transform")
		header.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	r.Header.Del("Accept-Encoding")
	r.Header.Del("Upgrade")
	_, err := fmt.Fprintf(s.w, ": %s\n\n", text)
	if err = cmp.Or(err, client.Flush()); err != nil {
		return fmt.Errorf("writing a comment to the client: %w", err)
	}
	_ = client.SetWriteDeadline(time.Time{})
	return nil
}

// Header implements [http.ResponseWriter].
func (s *Stream) Header() http.Header { return s.header }

// Unwrap is what [http.ResponseController] looks for.
func (s *Stream) Unwrap() http.ResponseWriter { return s.w }

// Write implements [http.ResponseWriter].
func (s *Stream) Write(p []byte) (int, error) {
	if s.Begun {
		s.WriteHeader(http.StatusOK) // unless there is a status
	}
	if s.failure != nil {
		return 0, s.failure
	}
	return s.w.Write(p)
}

// WriteHeader implements [http.ResponseWriter]. After a comment, the first final status decides what follows.
func (s *Stream) WriteHeader(status int) {
	switch {
	case !s.Begun:
		s.w.WriteHeader(status)
	case status < 200 || s.Follows || s.failure != nil: // an interim answer, or there is a status
	case status < 300 && isPlainStream(s.header):
		s.Follows = true
	default:
		s.fail("", caddyhttp.Error(status, errors.New("the upstream has answered, but not with an event stream")))
	}
}

// isPlainStream reports whether a header is that of an event stream which nobody has encoded.
func isPlainStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), MediaType) && slices.Contains([]string{"", "identity", "none"}, strings.ToLower(h.Get("Content-Encoding")))
}

// event ends a stream. Clients of OpenAI's and of Anthropic's interfaces read it. Its status is 503,
// whatever has happened, so that they try again.
const event = "event: error\nretry: %d\n" +
	`data: {"error":{"message":"the request got no event stream: %[2]s","type":"overloaded_error","code":"%[2]s","status":503},"type":"error"}` + "\n\n"

// fail sends the event. The client should try again when the header that it did not get says so, or else in
// three seconds. An empty code is the failure's status.
func (s *Stream) fail(code string, failure caddyhttp.HandlerError) {
	s.failure = failure
	seconds, err := strconv.ParseUint(s.header.Get("Retry-After"), 10, 31)
	if err != nil {
		seconds = 3
	}
	_, _ = fmt.Fprintf(s.w, event, 1000*seconds, cmp.Or(code, strconv.Itoa(failure.StatusCode)))
	_ = http.NewResponseController(s.w).Flush() // an error: the client has gone
}

// End ends a stream that has begun. err is what the handlers have returned, and reason why a queue has
// refused the request, or empty. The result is why no event stream has followed, or only a part of one, with
// the status that the client did not get.
func (s *Stream) End(err error, reason string) error {
	if err == nil {
		s.WriteHeader(http.StatusOK) // unless there is a status
	} else if !s.Follows && s.failure == nil {
		s.fail(reason, caddyhttp.Error(http.StatusInternalServerError, err)) // or with the status that it has
	}
	return cmp.Or(s.failure, err)
}
