package serialize

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

const wantOpens = "a moment as in RFC 3339, such as 2026-11-27T10:00:00+01:00"

func (p *WaitingPage) parseOpens(d *caddyfile.Dispenser) error {
	return directive.Values(d, 1, wantOpens+", and perhaps a text such as {http.vars.client_ip}", &p.Opens, &p.OpensBy)
}

// checkOpens refuses a moment that is none.
func (p *WaitingPage) checkOpens() error {
	if _, err := time.Parse(time.RFC3339, p.Opens); err != nil && p.Opens+p.OpensBy != "" {
		return fmt.Errorf("opens %q: expected %s", p.Opens, wantOpens)
	}
	return nil
}

// passOpening lets the line that follows one that ends decide when the queues open.
// Registered browsers stay registered.
func (s *Handler) passOpening() {
	var line *waitingpage.Line
	for _, other := range s.followers() {
		line = other.line
	}
	registered.browsers.MoveOpening(s.line.Space, s.Prefix, line)
}

// checkOpen refuses a request that comes before the opening, unless it gets the waiting page.
func (p *passage) checkOpen(r *http.Request) error {
	s := p.handler
	opens, closed := registered.browsers.Opening(s.Prefix, s.line).Closed()
	if !closed || p.visit != nil || s.line.Serves(r) {
		return nil
	}
	p.about.Opens = opens
	return &serializer.Refused{
		Reason: serializer.ReasonClosed, Queue: p.about.Queue, Err: fmt.Errorf("the queue opens at %s", opens.Format(time.RFC3339)),
	}
}

// maxClosedRetry bounds Retry-After before an opening, in seconds: it may be moved.
const maxClosedRetry = 3600

// retryAfter is after how many seconds a client that was refused may try again.
func (p *passage) retryAfter(now time.Time) string {
	s, opens := p.handler, p.about.Opens
	if opens.IsZero() {
		engine, queue := cmp.Or(p.engine, s.engine), p.about.Queue
		return s.report.Hold.RetryAfter(engine.Ahead(queue), s.capacity, engine.Holds(queue), s.least(), p.about.PausedUntil, now)
	}
	return strconv.Itoa(int(min(max(math.Ceil(opens.Sub(now).Seconds()), 1), maxClosedRetry)))
}

// chanceOf is whose chance a browser has at the opening; empty is its own.
func (s *Handler) chanceOf(r *http.Request) string {
	if s.WaitingPage.OpensBy == "" {
		return ""
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return "value " + repl.ReplaceAll(s.WaitingPage.OpensBy, "")
}

// opensText says what the setting is, for people. One moment is one text, in whatever zone it was
// written.
func (s *Handler) opensText() string {
	if s.line.Opens.IsZero() {
		return "no opens"
	}
	return strings.TrimSpace("opens " + s.line.Opens.UTC().Format(time.RFC3339Nano) + " " + s.WaitingPage.OpensBy)
}
