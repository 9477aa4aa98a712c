package serialize

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/eventstream"
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

// keepAlive is the setting of the interval, and of the word always.
func keepAlive() setting {
	s := directive.DurationSetting("keepalive", "15s", time.Second, directive.Longest, func(s *Handler) **caddy.Duration {
		return &cmp.Or(s.KeepAlive, new(KeepAlive)).Interval // of nobody if it is off
	})
	s.Syntax, s.Usual, s.Parse = "[<interval>] [always]", "off", (*Handler).parseKeepAlive
	return s
}

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
	return s.KeepAlive.Always && !navigates || waitingpage.Accepts(r.Header, eventstream.MediaType)
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
		if err := p.stream.Comment(r, text); err != nil {
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

// endStream ends the stream that the passage has opened, if it has begun. Error routes must not
// run then: they would write into the stream. So this logs what has failed, and notes the error
// for handlers around.
func (p *passage) endStream(err *error) {
	p.all.stream = nil
	if !p.stream.Begun {
		return
	}
	if thrown := recover(); thrown != nil { // net/http would break the stream off
		*err = caddyhttp.Error(http.StatusBadGateway, fmt.Errorf("panic: %v\n%s", thrown, debug.Stack()))
	}
	p.all.turns.Around().Fail(*err)
	refused := &p.all.latest.about // if anybody has: it may be an inner queue
	failure := p.stream.End(*err, string(refused.Reason))
	if *err = nil; failure == nil {
		return
	}
	p.handler.report.Unanswered(&p.about, failure)
	if p.stream.Follows { // the client must not take the part that it has for the whole
		panic(http.ErrAbortHandler)
	}
}
