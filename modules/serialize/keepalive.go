package serialize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// KeepAlive sends comments to clients that wait for an event stream, so that neither they nor
// proxies in between give up. These clients name text/event-stream in their Accept header. The
// first comment fixes the status, 200. An event stream of the upstream follows the comments as
// it is, and anything else becomes one event.
type KeepAlive struct {
	// How often a comment is sent, as a duration, and after what time the first one is. At
	// least 1s, at most 365d. Default: 15s.
	Interval *caddy.Duration `json:"interval,omitempty"`

	// Takes all clients that wait for such clients, whatever they accept, except for
	// browsers' navigations. Default: false.
	Always bool `json:"always,omitempty"`
}

// interval is that of nobody if keepalive is off.
func (s *Handler) interval() **caddy.Duration { return &cmp.Or(s.KeepAlive, new(KeepAlive)).Interval }

func (s *Handler) parseKeepAlive(d *caddyfile.Dispenser) (err error) {
	var interval caddy.Duration
	s.KeepAlive = new(KeepAlive)
	for err == nil && d.NextArg() {
		switch {
		case d.Val() == "always":
			s.KeepAlive.Always = true
		case s.KeepAlive.Interval != nil:
			err = d.Errf("keepalive: unexpected %q after another interval; expected one", d.Val())
		default:
			interval, err = directive.DurationOf(d, "keepalive", d.Val(), time.Second)
			s.KeepAlive.Interval = &interval
		}
	}
	return err
}

// streams reports whether a request whose turn does not come soon gets an event stream. One
// that gets the waiting page does not, and neither does one that asks for another protocol than HTTP/2:
// some clients offer that with every request.
func (s *Handler) streams(r *http.Request) bool {
	if s.KeepAlive == nil || r.Method == http.MethodHead || r.Method == http.MethodConnect || !r.ProtoAtLeast(1, 1) ||
		cmp.Or(r.Header.Get("Upgrade"), "h2c") != "h2c" || s.line.Serves(r) {
		return false
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	navigates := mode == "navigate" || mode == "" && waitingpage.Accepts(r.Header, "text/html")
	return s.KeepAlive.Always && !navigates || waitingpage.Accepts(r.Header, eventStreamType)
}

// waitCommenting waits for the turn. Meanwhile, the client gets comments.
func (p *passage) waitCommenting(ctx context.Context, wait serializer.Wait, w http.ResponseWriter, r *http.Request) (serializer.Turn, error) {
	restart := turncontext.StopTimeouts(w, r)
	defer func() { restart() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return wait.EndTicking(ctx, time.Tick(time.Duration(*p.handler.KeepAlive.Interval)), func() {
		text := "waiting"
		if number := waitingpage.PlacesOf(p.engine.Shared).Number(p); number > 0 {
			text = fmt.Sprintf("waiting, place %d", number)
		}
		restart() // or the writer would be past its deadline already
		if err := p.stream.comment(r, text); err != nil {
			cancel(err)
		}
		restart = turncontext.StopTimeouts(w, r)
	})
}

// Standing implements [waitingpage.Waiter].
func (p *passage) Standing() *waitingpage.Standing {
	if p.stream == nil {
		return nil
	}
	return &p.standing
}

const eventStreamType = "text/event-stream"

// eventStream is the response writer of one request. Until the first comment, it changes nothing.
// From then on, the client has a head, and the handlers get a header that nobody sends.
type eventStream struct {
	w       http.ResponseWriter // to the client
	header  http.Header         // of the handlers; that of w until the first comment
	begun   bool                // the client has got a comment
	follows bool                // after comments, it gets the upstream's event stream
	failure error               // of which the client has got the event that ends the stream
}

// writeTime is how long a comment may take to be written. A client that reads none must not
// keep its request from taking its turn, which may come meanwhile.
const writeTime = time.Second

// comment sends a comment. The first one comes with the head of the response. The upstream must not encode
// what follows, or change to another protocol, so the request loses its Accept-Encoding and Upgrade.
func (s *eventStream) comment(r *http.Request, text string) error {
	client := http.NewResponseController(s.w)
	_ = client.SetWriteDeadline(time.Now().Add(writeTime)) // an error: there are none
	if !s.begun {
		header := s.header
		s.header, s.begun = header.Clone(), true
		header.Set("Content-Type", eventStreamType)
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
func (s *eventStream) Header() http.Header { return s.header }

// Unwrap is what [http.ResponseController] looks for.
func (s *eventStream) Unwrap() http.ResponseWriter { return s.w }

// Write implements [http.ResponseWriter].
func (s *eventStream) Write(p []byte) (int, error) {
	if s.begun {
		s.WriteHeader(http.StatusOK) // unless there is a status
	}
	if s.failure != nil {
		return 0, s.failure
	}
	return s.w.Write(p)
}

// WriteHeader implements [http.ResponseWriter]. After a comment, the first final status decides what follows:
// an event stream which nobody has encoded, or an event.
func (s *eventStream) WriteHeader(status int) {
	kind, _, _ := strings.Cut(s.header.Get("Content-Type"), ";")
	plain := slices.Contains([]string{"", "identity", "none"}, strings.ToLower(s.header.Get("Content-Encoding")))
	switch {
	case !s.begun:
		s.w.WriteHeader(status)
	case status < 200 || s.follows || s.failure != nil: // an interim answer, or there is a status
	case status < 300 && plain && strings.EqualFold(strings.TrimSpace(kind), eventStreamType):
		s.follows = true
	default:
		s.fail("", caddyhttp.Error(status, errors.New("the upstream has answered, but not with an event stream")))
	}
}

// streamError ends a stream. Clients of OpenAI's and of Anthropic's interfaces read it. Its status is 503,
// whatever has happened, so that they try again.
const streamError = "event: error\nretry: %d\n" +
	`data: {"error":{"message":"the request got no event stream: %[2]s","type":"overloaded_error","code":"%[2]s","status":503},"type":"error"}` + "\n\n"

// fail sends the event. The client should try again when the header that it did not get says so, or else in
// three seconds. An empty code is the failure's status.
func (s *eventStream) fail(code string, failure caddyhttp.HandlerError) {
	s.failure = failure
	seconds, err := strconv.ParseUint(s.header.Get("Retry-After"), 10, 31)
	if err != nil {
		seconds = 3
	}
	_, _ = fmt.Fprintf(s.w, streamError, 1000*seconds, cmp.Or(code, strconv.Itoa(failure.StatusCode)))
	_ = http.NewResponseController(s.w).Flush() // an error: the client has gone
}

// endStream ends the stream that the passage has opened, if it has begun. Error routes must not
// run then: they would write into the stream. So this logs what has failed, with the status that the
// client did not get, and notes the error for handlers around.
func (p *passage) endStream(err *error) {
	s := p.stream
	if p.all.stream = nil; !s.begun {
		return
	}
	if thrown := recover(); thrown != nil { // net/http would break the stream off
		*err = caddyhttp.Error(http.StatusBadGateway, fmt.Errorf("panic: %v\n%s", thrown, debug.Stack()))
	}
	p.all.turns.Around().Fail(*err)
	if *err == nil {
		s.WriteHeader(http.StatusOK) // unless there is a status
	} else if !s.follows && s.failure == nil {
		refused := &p.all.latest.about                                                        // if anybody has: it may be an inner queue
		s.fail(string(refused.Reason), caddyhttp.Error(http.StatusInternalServerError, *err)) // or with the status that it has
	}
	failure := cmp.Or(s.failure, *err)
	if *err = nil; failure == nil {
		return
	}
	p.handler.report.Unanswered(&p.about, failure)
	if s.follows { // the client must not take the part that it has for the whole
		panic(http.ErrAbortHandler)
	}
}
