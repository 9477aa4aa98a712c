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
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
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

const leastInterval = time.Second

func (s *Handler) parseKeepAlive(d *caddyfile.Dispenser) error {
	s.KeepAlive = new(KeepAlive)
	for _, text := range d.RemainingArgs() {
		if text == "always" {
			s.KeepAlive.Always = true
			continue
		}
		interval, err := directive.DurationOf(d, "keepalive", text, leastInterval)
		if err != nil {
			return err
		}
		if s.KeepAlive.Interval != nil {
			return d.Errf("keepalive: unexpected %q after another interval; expected one", text)
		}
		s.KeepAlive.Interval = &interval
	}
	return nil
}

func (k *KeepAlive) check() error {
	if k == nil || k.Interval == nil {
		return nil
	}
	return directive.CheckDuration("keepalive", time.Duration(*k.Interval), leastInterval)
}

// streams reports whether a request whose turn does not come soon gets an event stream. One
// that gets the waiting page does not, and neither does one that asks for another protocol than HTTP/2:
// some clients offer that with every request.
func (s *Handler) streams(r *http.Request) bool {
	if s.KeepAlive == nil || r.Method == http.MethodHead || r.Method == http.MethodConnect || !r.ProtoAtLeast(1, 1) ||
		cmp.Or(r.Header.Get("Upgrade"), "h2c") != "h2c" || s.line.Serves(r) {
		return false
	}
	if waitingpage.Accepts(r.Header, eventstream.MediaType) {
		return true
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	return s.KeepAlive.Always && mode != "navigate" && (mode != "" || !waitingpage.Accepts(r.Header, "text/html"))
}

// openStream makes the stream of a request. Its reason is that of the queue that has refused
// the request, which may be an inner one.
func openStream(w http.ResponseWriter, r *http.Request) *eventstream.Stream {
	placeholders := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return eventstream.New(w, func() string {
		reason, _ := placeholders.GetString(telemetry.PlaceholderPrefix + "reason")
		return reason
	})
}

// waitCommenting waits for the turn. Meanwhile, the client gets comments.
func (p *passage) waitCommenting(ctx context.Context, wait serializer.Wait, w http.ResponseWriter, r *http.Request) (serializer.Turn, error) {
	restart := turncontext.StopTimeouts(w, r)
	defer func() { restart() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ticker := time.NewTicker(time.Duration(*p.handler.KeepAlive.Interval))
	defer ticker.Stop()
	return wait.EndTicking(ctx, ticker.C, func() {
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
func (p *passage) endStream(r *http.Request, err *error) {
	p.all.stream = nil
	if !p.stream.Begun() {
		return
	}
	if thrown := recover(); thrown != nil { // net/http would break the stream off
		*err = caddyhttp.Error(http.StatusBadGateway, fmt.Errorf("panic: %v\n%s", thrown, debug.Stack()))
	}
	if *err != nil {
		p.all.turns.Around().Fail(*err)
	}
	if *err = p.stream.End(*err); *err == nil {
		return
	}
	p.handler.report.Unanswered(&p.about, *err)
	if p.stream.Follows() { // the client must not take the part that it has for the whole
		panic(http.ErrAbortHandler)
	}
	*err = nil
}
