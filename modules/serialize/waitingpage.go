package serialize

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
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
	directive.OnText("file", "the path of a page", func(p *WaitingPage) *string { return &p.File }),
}

func (s *Handler) parseWaitingPage(d *caddyfile.Dispenser) error {
	s.WaitingPage = new(WaitingPage)
	return pageSubdirectives.ParseBlock(d, "waiting_page", s.WaitingPage)
}
