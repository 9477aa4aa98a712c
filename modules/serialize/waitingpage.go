package serialize

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
)

// WaitingPage answers waiting browsers with a page that shows their place. A browser is
// recognised by its navigation: a GET whose Accept header has text/html, and whose
// Sec-Fetch-Mode, if sent, is navigate. If it is not sent, there must be none of the fields
// that scripts and prefetches send, such as X-Requested-With. All other requests wait with an open connection.
type WaitingPage struct {
	// How long a navigation waits with an open connection before it gets the page, as a
	// duration. 0 means to answer at once. Default: 2s.
	After *caddy.Duration `json:"after,omitempty"`

	// How long to keep the place of a browser that does not come back, as a duration. At
	// least 1s. Default: 15s, and with `visit` 5m.
	Hold *caddy.Duration `json:"hold,omitempty"`

	// The path of a custom page, a Go html/template. It is read when the configuration is
	// loaded. Default: the built-in page.
	File string `json:"file,omitempty"`

	// The HTTP status of the page: 200, 202, 429 or 503. 0 means the default. Default: 503.
	Status int `json:"status,omitempty"`

	// Lets programs keep a place, too: a GET that accepts `application/json` and nothing else gets
	// its place as JSON, and a cookie, which it sends when it asks again. Default: false.
	JSON bool `json:"json,omitempty"`

	// When the queue opens, as in RFC 3339. Browsers that come before get the page, and their
	// places are drawn by lot at that moment. All others are refused until then, with the reason
	// `closed`. A moment in the past does nothing. Default: none; the queue is open.
	Opens string `json:"opens,omitempty"`

	// A text with placeholders such as `{http.vars.client_ip}`. All browsers that share its value
	// have one chance in the draw. Default: none; each browser has its own.
	OpensBy string `json:"opens_by,omitempty"`

	page *waitingpage.Page
}

const leastHold = time.Second

var pageStatus = directive.Range{Least: 200, Most: 503, Only: []int{200, 202, 429, 503}, Want: "200, 202, 429 or 503"}

// provision applies the defaults, checks the settings and loads the page.
func (p *WaitingPage) provision(visits bool) error {
	if visits {
		p.Hold = cmp.Or(p.Hold, new(caddy.Duration(5*time.Minute))) // a phone that is locked for a while keeps its place
	}
	err := pageSettings.FillIn(p)
	if err == nil {
		p.page, err = waitingpage.Load(p.File, p.Status, p.JSON, time.Duration(*p.After), time.Duration(*p.Hold))
	}
	return err
}

// newLine is what the line says of the browsers in its queues. They send GET.
func (s *Handler) newLine() *waitingpage.Line {
	line := &waitingpage.Line{
		Space: s.engine.Space, Report: s.report, Capacity: s.capacity, Rule: s.ruleOf(http.MethodGet), Slots: s.slots,
	}
	if s.WaitingPage == nil { // as in a dry run
		return line
	}
	line.Page = s.WaitingPage.page
	line.Opens, _ = time.Parse(time.RFC3339, s.WaitingPage.Opens) // checkOpens has done that
	if s.Visit != nil {
		line.Visits = &waitingpage.Visits{Idle: time.Duration(s.Visit.Idle), Longest: time.Duration(s.Visit.Longest)}
	}
	return line
}

// pageSettings are those of the block, in the order of the documents.
var pageSettings = directive.Settings[*WaitingPage]{
	directive.DurationSetting("after", "2s", 0, directive.Longest, func(p *WaitingPage) **caddy.Duration { return &p.After }),
	directive.DurationSetting("hold", "15s", leastHold, directive.Longest, func(p *WaitingPage) **caddy.Duration { return &p.Hold }),
	directive.OptionalText("file", "the path of a page", func(p *WaitingPage) *string { return &p.File }),
	directive.NumberSetting("status", "<code>", http.StatusServiceUnavailable, pageStatus, func(p *WaitingPage) *int { return &p.Status }),
	directive.FlagSetting("json", func(p *WaitingPage) *bool { return &p.JSON }),
	{Name: "opens", Parse: (*WaitingPage).parseOpens, Check: (*WaitingPage).checkOpens},
}

func (s *Handler) parseWaitingPage(d *caddyfile.Dispenser) error {
	s.WaitingPage = new(WaitingPage)
	return pageSettings.ParseBlock(d, "waiting_page", s.WaitingPage)
}
