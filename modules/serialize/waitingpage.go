package serialize

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// WaitingPage answers waiting browsers with a page that shows their place. A browser is
// recognised by its navigation: a GET whose Accept header has text/html, and whose
// Sec-Fetch-Mode, if sent, is navigate. All other requests wait with an open connection.
type WaitingPage struct {
	// How long a navigation waits with an open connection before it gets the page, as a
	// duration. 0 means to answer at once. Default: 2s.
	After *caddy.Duration `json:"after,omitempty"`

	// How long to keep the place of a browser that does not come back, as a duration. At
	// least 1s. Default: 15s.
	Hold *caddy.Duration `json:"hold,omitempty"`

	// The path of a custom page, a Go html/template. It is read when the configuration is
	// loaded. Default: the built-in page.
	File string `json:"file,omitempty"`

	page *waitingpage.Page
}

func (p *WaitingPage) fill() {
	p.After = orDefault(p.After, caddy.Duration(2*time.Second))
	p.Hold = orDefault(p.Hold, caddy.Duration(15*time.Second))
}

func (p *WaitingPage) check() error {
	if p == nil {
		return nil
	}
	return errors.Join(directive.CheckDuration("after", time.Duration(*p.After)), checkHold(time.Duration(*p.Hold)))
}

func checkHold(hold time.Duration) error {
	if hold < time.Second {
		return fmt.Errorf("hold %s: expected a duration of 1s or more, such as 15s", hold)
	}
	return nil
}

func (p *WaitingPage) provision(caddy.Context) (err error) {
	p.page, err = waitingpage.Load(p.File, time.Duration(*p.After), time.Duration(*p.Hold))
	return err
}

var pageSubdirectives = directive.Table[*WaitingPage]{
	directive.On("after", func(p *WaitingPage, d *caddyfile.Dispenser) error {
		after, err := directive.Duration(d)
		p.After = &after
		return err
	}),
	directive.On("hold", func(p *WaitingPage, d *caddyfile.Dispenser) error {
		hold, err := directive.Duration(d)
		p.Hold = &hold
		return cmp.Or(err, directive.In(d, checkHold(time.Duration(hold))))
	}),
	directive.On("file", func(p *WaitingPage, d *caddyfile.Dispenser) (err error) {
		p.File, err = directive.Text(d, "the path of a page")
		return err
	}),
}

func (s *Handler) parseWaitingPage(d *caddyfile.Dispenser) error {
	s.WaitingPage = new(WaitingPage)
	if err := directive.NoArgument(d, "waiting_page"); err != nil {
		return err
	}
	return pageSubdirectives.ParseBlock(d, "waiting_page", s.WaitingPage)
}

// serveBrowser serves a request that waits with the ticket of a browser. If that takes long,
// the browser gets the page, and comes again.
func (v *visit) serveBrowser(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	v.openContext(r)
	span := v.startWait(r.Context())
	t, turn, err := registered.browsers.Wait(w, r, &waitingpage.Visit{
		Arrival: v.arrival(r), Space: v.engine.space, Page: v.handler.WaitingPage.page, Start: v.newBrowser,
	})
	if t != nil {
		err = v.replace(t.Caller.(*browser), turn, err)
	}
	v.endWait(span, err)
	if err == nil {
		return v.serve(w, r, next)
	}
	v.cancel(nil)
	if errors.Is(err, waitingpage.ErrAnswered) {
		return nil
	}
	return v.refuse(w, r, err)
}

// replace puts the visit in the place of a browser whose ticket is over.
func (v *visit) replace(k *browser, turn serializer.Turn, err error) error {
	v.entered = time.Now()
	v.age.Queue, v.waited = v.queue, v.entered.Sub(k.age.Since)
	if err != nil {
		return err
	}
	k.endWait()
	v.engine, v.turn = k.engine, turn
	if err = v.engine.checkRivals(v.queue, turn); err != nil {
		v.handler.releaseEngine(v.engine)
	}
	return err
}

// browser is what a ticket without a connection has in place of a visit. It is small, since
// many may wait.
type browser struct {
	handler *Handler
	engine  *engineRef // with a reference until the ticket has ended, or its turn is over
	age     agelist.Entry
}

func (v *visit) newBrowser() (*waitingpage.Places, waitingpage.Caller, error) {
	engine, err := v.handler.acquireEngine()
	if err != nil {
		return nil, nil, err
	}
	k := &browser{handler: v.handler, engine: engine}
	k.age.Reader = v.age.Reader
	k.handler.meters.startWait(&k.age, v.queue, time.Now())
	return &engine.places, k, nil
}

func (k *browser) endWait() { k.handler.meters.endWait(&k.age, time.Since(k.age.Since)) }

// End implements [waitingpage.Caller].
func (k *browser) End(why error) {
	k.endWait()
	if errors.Is(why, waitingpage.ErrAway) {
		k.handler.meters.count(string(serializer.ReasonGone))
	}
	k.handler.releaseEngine(k.engine)
}

// Guess implements [waitingpage.Caller].
func (k *browser) Guess(number int) float64 {
	m := k.handler.meters
	if m.hold.nanoseconds.Load() == 0 {
		return 0
	}
	inside := m.holdAges.Ages(k.age.Queue, time.Now())
	return float64(number) / m.hold.pace(k.handler.capacity(len(inside)), inside)
}
