package serialize

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/finalanswer"
	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Visit makes a browser's turn a visit: all its requests to the queue pass by one turn, until it
// stays away.
type Visit struct {
	// How long a visit goes on after the last of its requests has ended, as a duration. Required.
	Idle caddy.Duration `json:"idle"`

	// How long a visit may last, as a duration. Requests that are under way then finish. 0
	// means no limit. Default: 0.
	Longest caddy.Duration `json:"longest,omitempty"`
}

func (v *Visit) check() error {
	if v == nil {
		return nil
	}
	return errors.Join(
		directive.CheckDuration("visit", time.Duration(v.Idle), time.Millisecond),
		directive.CheckDuration("visit: longest", time.Duration(v.Longest), 0))
}

func (s *Handler) parseVisit(d *caddyfile.Dispenser) (err error) {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return d.Errf("visit: found %d values; expected for how long a browser may be idle, such as 5m, and perhaps the longest visit, such as 30m", len(args))
	}
	s.Visit = new(Visit)
	if s.Visit.Idle, err = directive.DurationOf(d, "visit", args[0], time.Millisecond); err == nil && len(args) > 1 {
		s.Visit.Longest, err = directive.DurationOf(d, "visit: longest", args[1], 0)
	}
	return err
}

// text says what the setting is, for people.
func (v *Visit) text() string {
	if v == nil {
		return "no visit"
	}
	return fmt.Sprintf("visit %s %s", time.Duration(v.Idle), time.Duration(v.Longest))
}

// passConcurrency gives the tickets of a line that ends the concurrency of the line that follows
// it. A visit may go on for long, and others wait for its place.
func (s *Handler) passConcurrency() {
	concurrency := s.successor().Concurrency
	if s.line.Visits == nil || concurrency == s.Concurrency {
		return
	}
	mine := func(r serializer.Requester) bool { return prefixOf(r) == s.Prefix } // others may have a name that this prefix can make
	for _, state := range s.engine.Known(s.prefix.CanBe) {
		s.engine.SetLimit(state.Prefix, concurrency, mine)
	}
}

// enterVisit gives the request the turn of its visit, once its body has been read.
func (p *passage) enterVisit() error {
	turn, err := p.visit.Enter()
	if err == nil {
		p.turn, p.about.Token, p.about.Position, p.about.Since = turn, turn.Token(), turn.Position(), time.Now()
	}
	return err
}

// waitAsBrowser waits with the ticket of the request's browser. If that takes long, the
// browser gets the page, and comes again.
func (p *passage) waitAsBrowser(w http.ResponseWriter, r *http.Request) error {
	s := p.handler
	ctx, stop := p.context.Waiting(requestbody.Unread(r))
	defer stop()
	n := &waitingpage.Navigation{
		Line: s.line, Arrival: p.arrival(r), About: &p.about, Engine: s.engine,
		Opening: registered.browsers.Opening(s.Prefix, s.line), Chance: s.chanceOf(r),
	}
	engine, taken, err := registered.browsers.Wait(w, r.WithContext(ctx), n)
	if err != nil {
		return err
	}
	if p.visit = n.Part; p.visit == nil { // else the visit keeps the engine open
		p.engine = engine
	}
	return p.take(engine, taken, nil)
}

// isOfBrowser reports whether the request waits by the ticket of its browser.
func (p *passage) isOfBrowser(r *http.Request) bool {
	line := p.handler.line
	return line.Serves(r) || line.Visits != nil && registered.browsers.Knows(r, line.Space, p.about.Queue)
}

// kept is how much is kept of the response. A visit's turn goes on, so nothing is gained by that.
func (p *passage) kept() int64 {
	if p.visit != nil {
		return 0
	}
	return int64(*p.handler.ResponseBuffer)
}

// Fields by which the upstream ends a visit, or lets its browser be away for longer.
const (
	leaveField = "Orderly-Leave"
	stayField  = "Orderly-Stay"
)

// answering lets the answers of the next handlers end a visit, and keeps caches from them.
func (p *passage) answering(next caddyhttp.Handler) caddyhttp.Handler {
	if p.handler.line.Visits == nil {
		return next
	}
	return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return finalanswer.Serve(w, r, next, p.obey)
	})
}

// obey obeys the fields of an answer's header that are for the queue, and takes them out.
func (p *passage) obey(h http.Header) {
	if p.visit != nil && h.Get(leaveField) == "1" {
		p.visit.LeaveAfter()
	}
	if idle := readDuration(h.Get(stayField)); idle > 0 && p.visit != nil {
		p.visit.Stay(idle)
	}
	h.Del(leaveField)
	h.Del(stayField)
	if waitingpage.SetsCookie(h) { // a shared cache would give the visit to others
		h.Set("Cache-Control", "private, no-store")
	}
}
