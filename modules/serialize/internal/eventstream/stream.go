// Package eventstream answers a client that waits with an event stream of comments. So
// neither the client nor a proxy in between gives up. Afterwards, the upstream's own event
// stream follows, and anything else becomes one event.
package eventstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	w       http.ResponseWriter // to the client
	reason  func() string       // of a refusal, or ""
	header  http.Header         // of the handlers, since the first comment
	state   state
	failure error // why it has failed
}

type state uint8

const (
	untouched  state = iota // the client has got nothing
	commenting              // it has got comments
	following               // it gets the upstream's event stream
	failed                  // it has got the event that ends the stream
)

// New makes the stream of a request. The function returns the reason for which a queue has
// refused the request, or "".
func New(w http.ResponseWriter, reason func() string) *Stream { return &Stream{w: w, reason: reason} }

// Begun reports whether the client has got a comment.
func (s *Stream) Begun() bool { return s.state != untouched }

// Follows reports whether the client gets the upstream's event stream.
func (s *Stream) Follows() bool { return s.state == following }

// writeTime is how long a comment may take to be written. A client that reads none must not
// keep its request from taking its turn, which may come meanwhile.
const writeTime = time.Second

// Comment sends a comment. The first one comes with the head of the response. The upstream must not encode
// what follows, or change to another protocol, so the request loses its Accept-Encoding and Upgrade.
func (s *Stream) Comment(r *http.Request, text string) error {
	client := http.NewResponseController(s.w)
	_ = client.SetWriteDeadline(time.Now().Add(writeTime)) // an error: there are none
	if !s.Begun() {
		s.begin()
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

func (s *Stream) begin() {
	header := s.w.Header()
	s.header, s.state = header.Clone(), commenting
	header.Set("Content-Type", MediaType)
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no")
	header.Del("Content-Length")
	s.w.WriteHeader(http.StatusOK)
}

// Header implements [http.ResponseWriter].
func (s *Stream) Header() http.Header {
	if s.Begun() {
		return s.header
	}
	return s.w.Header()
}

// WriteHeader implements [http.ResponseWriter]. After a comment, it decides what follows.
func (s *Stream) WriteHeader(status int) {
	switch {
	case s.state == untouched:
		s.w.WriteHeader(status)
	case s.state != commenting || status < 200:
	case status < 300 && isPlainStream(s.header):
		s.state = following
	default:
		s.fail(status)
	}
}

// isPlainStream reports whether a header is that of an event stream which nobody has encoded.
func isPlainStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	encoding := cmp.Or(h.Get("Content-Encoding"), "identity")
	return strings.EqualFold(strings.TrimSpace(kind), MediaType) && strings.EqualFold(encoding, "identity")
}

// errFailed is for handlers that write more than a client can get.
var errFailed = errors.New("the client has got an error event in place of this response")

// Write implements [http.ResponseWriter].
func (s *Stream) Write(p []byte) (int, error) {
	if s.state == commenting {
		s.WriteHeader(http.StatusOK)
	}
	if s.state == failed {
		return 0, errFailed
	}
	return s.w.Write(p)
}

// FlushError is what [http.ResponseController] looks for.
func (s *Stream) FlushError() error {
	if s.state == commenting {
		s.WriteHeader(http.StatusOK)
	}
	if s.state == failed {
		return errFailed
	}
	return http.NewResponseController(s.w).Flush()
}

// Unwrap is what [http.ResponseController] looks for.
func (s *Stream) Unwrap() http.ResponseWriter { return s.w }

// problem says in an event why no event stream follows. Clients of OpenAI's and of Anthropic's
// interfaces read it.
type problem struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    string `json:"code"`   // the reason of a refusal, or else the status
	Status  int    `json:"status"` // 503, whatever has happened
}

// retryTime is when a client should try again if nobody has said it.
const retryTime = 3 * time.Second

// End ends a stream that has begun. err is what the handlers have returned. The result is why
// no event stream has followed, or only a part of one, with the status that the client did not get.
func (s *Stream) End(err error) error {
	switch {
	case s.state == commenting && err == nil:
		s.WriteHeader(http.StatusOK)
	case s.state == commenting:
		failed, _ := errors.AsType[caddyhttp.HandlerError](err)
		s.fail(cmp.Or(failed.StatusCode, http.StatusInternalServerError))
		return err
	}
	return cmp.Or(s.failure, err)
}

// fail sends the event that ends the stream, in place of a response with a status.
func (s *Stream) fail(status int) {
	p := problem{
		Message: fmt.Sprintf("the server has answered %d %s", status, http.StatusText(status)), Type: "overloaded_error",
		Code: strconv.Itoa(status), Status: http.StatusServiceUnavailable,
	}
	reason := s.reason()
	switch {
	case reason != "":
		p.Code, p.Message = reason, "the request was refused while it waited in a queue: "+reason
	case status < 300:
		status, p.Message = http.StatusBadGateway, p.Message+", but not with an event stream"
	}
	s.state, s.failure = failed, caddyhttp.Error(status, errors.New(p.Message))
	data, _ := json.Marshal(map[string]any{"type": "error", "error": p}) // which are texts and a number
	_, _ = fmt.Fprintf(s.w, "event: error\nretry: %d\ndata: %s\n\n", s.retry().Milliseconds(), data)
	_ = http.NewResponseController(s.w).Flush() // an error: the client has gone
}

// retry is when the client should try again, by the header of the answer that it did not get.
func (s *Stream) retry() time.Duration {
	seconds, err := strconv.ParseUint(s.header.Get("Retry-After"), 10, 31)
	if err != nil {
		return retryTime
	}
	return time.Duration(seconds) * time.Second
}
