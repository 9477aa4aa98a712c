package serialize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// WaitingPage answers browsers that wait with a page that shows their place. A browser
// is recognised by its navigation: a GET whose Accept header has text/html, and whose
// Sec-Fetch-Mode, where sent, is navigate. Everything else waits with an open
// connection.
type WaitingPage struct {
	// For how long a navigation waits with an open connection before it gets the
	// page. 0 answers at once. Default: 2s.
	After *caddy.Duration `json:"after,omitempty"`

	// For how long the place of a browser is kept that does not come back. At least
	// 1s. Default: 15s.
	Hold *caddy.Duration `json:"hold,omitempty"`

	// The path of a page of one's own, a Go html/template. It is read when the
	// configuration is loaded. Default: the built-in page.
	File string `json:"file,omitempty"`

	page *waitingTemplate
	stop chan struct{} // closed when the server stops: live pages go to its successor
}

const (
	defaultAfter = 2 * time.Second
	defaultHold  = 15 * time.Second
	minHold      = time.Second
)

func (p *WaitingPage) normalize() {
	if p.After == nil {
		after := caddy.Duration(defaultAfter)
		p.After = &after
	}
	if p.Hold == nil {
		hold := caddy.Duration(defaultHold)
		p.Hold = &hold
	}
}

func checkWaitingPage(p *WaitingPage) error {
	if p == nil {
		return nil
	}
	return errors.Join(directive.CheckDuration("after", time.Duration(*p.After)), checkPageHold(time.Duration(*p.Hold)))
}

func checkPageHold(hold time.Duration) error {
	if hold < minHold {
		return fmt.Errorf("hold %s: expected a duration of 1s or more, such as 15s", hold)
	}
	return nil
}

// provision loads the page.
func (p *WaitingPage) provision(ctx caddy.Context) (err error) {
	if p.page, err = loadWaitingTemplate(p.File); err != nil {
		return err
	}
	p.stop = make(chan struct{})
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(p.shutDown)
	}
	return nil
}

// shutDown notes that the server takes no new requests. In a process that exits, no
// other server takes them, either.
func (p *WaitingPage) shutDown() {
	close(p.stop)
	if caddy.Exiting() {
		keptTickets.close()
	}
}

var pageSubdirectives = directive.Table[*WaitingPage]{
	directive.On("after", (*WaitingPage).parseAfter),
	directive.On("hold", (*WaitingPage).parseHold),
	directive.On("file", (*WaitingPage).parseFile),
}

func (s *Handler) parseWaitingPage(d *caddyfile.Dispenser) error {
	s.WaitingPage = new(WaitingPage)
	if err := directive.NoArgument(d, "waiting_page"); err != nil {
		return err
	}
	return pageSubdirectives.ParseBlock(d, "waiting_page", s.WaitingPage)
}

func (p *WaitingPage) parseAfter(d *caddyfile.Dispenser) error {
	after, err := directive.Duration(d)
	p.After = &after
	return err
}

func (p *WaitingPage) parseHold(d *caddyfile.Dispenser) error {
	hold, err := directive.Duration(d)
	p.Hold = &hold
	if err != nil {
		return err
	}
	return directive.In(d, checkPageHold(time.Duration(hold)))
}

func (p *WaitingPage) parseFile(d *caddyfile.Dispenser) (err error) {
	p.File, err = directive.Text(d, "the path of a page")
	return err
}

// isNavigation reports whether a request is a browser's navigation, or from the script
// of the waiting page. A page in a frame gets no cookies of other sites, and one that
// is fetched ahead may never be shown: they wait with an open connection.
func (v *visit) isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet || sendsBody(r) || v.insideElsewhere() {
		return false
	}
	if isLive(r) {
		return true
	}
	h := r.Header
	return acceptsHTML(h.Values("Accept")) &&
		isAbsentOr(h.Get("Sec-Fetch-Mode"), "navigate") &&
		isAbsentOr(h.Get("Sec-Fetch-Dest"), "document") &&
		h.Get("Sec-Purpose") == ""
}

// sendsBody reports whether a GET has a body, which no browser's navigation has. Over
// HTTP/3 that shows only when it is read.
func sendsBody(r *http.Request) bool {
	if held, ok := r.Body.(*heldBody); ok && held.ended {
		return len(held.memory) > 0 || held.fileSize > 0
	}
	return hasBody(r) && (r.ProtoMajor < 3 || r.ContentLength > 0)
}

func isAbsentOr(value, wanted string) bool { return value == "" || value == wanted }

// acceptsHTML reports whether HTML is asked for by name: programs accept anything.
func acceptsHTML(accept []string) bool {
	for text := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(text, ";")
		if strings.EqualFold(strings.TrimSpace(name), "text/html") && qualityParam(params) > 0 {
			return true
		}
	}
	return false
}

// serveNavigation is ServeHTTP for a browser's navigation.
func (s *Handler) serveNavigation(w http.ResponseWriter, r *http.Request, v *visit, next caddyhttp.Handler) error {
	queue := s.waitingQueue(v.queue, v.age.reader)
	k, cookies := s.readWaitingCookies(r, queue)
	if isLive(r) {
		return s.serveLive(w, r, v, k, cookies)
	}
	if k == nil {
		if place, ok := s.placeElsewhere(v.queue, cookies.unknown); ok {
			return s.sendPage(w, r, v, place, elsewhereRefresh)
		}
	}
	lost := k == nil && len(cookies.unknown) > 0 && !cookies.used
	if k != nil && !s.mayClaim(k, r) {
		keptTickets.giveUp(k)
		k, lost = nil, true
	}
	arrived := k == nil
	if arrived {
		engine, err := s.acquireEngine()
		if err != nil {
			return s.refuse(w, r, v, err)
		}
		k = s.newKeptTicket(r, v, queue, engine)
		k.lost = lost
	}
	v.openHold(r)
	var err error
	if arrived {
		err = v.awaitTurn(w, r, k)
	} else {
		err = v.takeTurnOf(k)
	}
	if errors.Is(err, errStillWaiting) {
		v.cancel(nil)
		place := k.shown()
		place.lost = k.lost
		cookies.give(w, r, k)
		refresh := place.refresh(k.hold)
		keptTickets.expect(k, refresh)
		return s.sendPage(w, r, v, place, refresh)
	}
	cookies.take(w, r)
	if err != nil {
		v.cancel(nil)
		return s.refuse(w, r, v, err)
	}
	defer keptTickets.forget(k)
	return v.serve(w, r, next)
}

// errStillWaiting tells that the browser is to get the page.
var errStillWaiting = errors.New("still waiting")

// takeTurnOf takes over the turn of a browser's ticket. The error says why there is
// none.
func (v *visit) takeTurnOf(k *keptTicket) error {
	if keptTickets.claim(k, v) {
		if cause := keptTickets.revocation(k); cause != nil {
			v.revoke(cause)
		}
		return nil
	}
	if err := keptTickets.takeRefusal(k, v); err != nil {
		return err
	}
	return errStillWaiting
}

// askAgain is how often a navigation that has to wait with its connection tries
// whether its ticket can be kept without it.
const askAgain = time.Second

// awaitTurn waits for the turn of a ticket with an open connection, until the ticket
// can be kept for the browser.
func (v *visit) awaitTurn(w http.ResponseWriter, r *http.Request, k *keptTicket) (err error) {
	s := v.handler
	clocks := stopDeadlines(w, r, time.Duration(*s.Timeout))
	client := watchClient(r)
	span := v.startWait(r.Context())
	changes := keptTickets.watch(k, k.arrived)
	defer func() {
		client.unwatch()
		clocks.restart(time.Since(k.arrived))
		if errors.Is(err, errStillWaiting) {
			v.endKept(span)
			return
		}
		v.endWait(span, err)
	}()
	timer := time.NewTimer(time.Duration(*s.WaitingPage.After))
	defer timer.Stop()
	for {
		if keptTickets.isOver(k) {
			return v.late(k)
		}
		select {
		case <-changes:
			if err := v.takeTurnOf(k); !errors.Is(err, errStillWaiting) {
				return err
			}
		case <-r.Context().Done():
			keptTickets.abandon(k)
			return v.gone(r.Context(), k)
		case <-timer.C:
			switch place := k.shown(); {
			case place.turn: // the turn is on its way to this request
				timer.Reset(time.Millisecond)
			case keptTickets.keep(k, changes):
				return errStillWaiting
			default:
				timer.Reset(askAgain)
			}
		}
	}
}

// late is the refusal of a request that did not take its turn in time, for the process
// was stopped meanwhile.
func (v *visit) late(k *keptTicket) error {
	v.waited = time.Since(k.arrived)
	return &serializer.Refused{
		Reason: serializer.ReasonTimeout, Queue: v.queue, Position: int(k.place.Load()), Token: k.token.Load(), Err: serializer.ErrTimeout,
	}
}

// gone is the refusal of a client that went away while it waited.
func (v *visit) gone(ctx context.Context, k *keptTicket) error {
	v.waited = time.Since(k.arrived)
	return &serializer.Refused{
		Reason: serializer.ReasonGone, Queue: v.queue, Position: int(k.place.Load()), Token: k.token.Load(), Err: context.Cause(ctx),
	}
}

// elsewhereRefresh is how soon a browser tries again to reach the process that has its
// ticket.
const elsewhereRefresh = time.Second

// placeElsewhere is the place of a ticket that another process has, of those that a
// browser brings. To be shown it is of no use to anybody but its browser, so the number
// needs no secret.
func (s *Handler) placeElsewhere(queue string, tokens []uint64) (place shownPlace, ok bool) {
	tokens = slices.DeleteFunc(slices.Clone(tokens), func(token uint64) bool { return token == 0 })
	if len(tokens) == 0 || !s.engine.acquire() {
		return shownPlace{}, false
	}
	defer s.releaseEngine(s.engine)
	places := &s.engine.places
	places.read(s.engine.sharedEngine)
	t, ok := places.remote(queue, tokens)
	if !ok { // it may be younger than the latest reading
		places.readSince(s.engine.sharedEngine, time.Now())
		t, ok = places.remote(queue, tokens)
	}
	return shownPlace{place: t.place, turn: t.inside, paused: t.paused}, ok
}

// refresh is how soon a browser without JavaScript comes again: often when its turn is
// near, and several times within hold. It is in whole seconds.
func (p shownPlace) refresh(hold time.Duration) time.Duration {
	most := max(hold/3, time.Second).Truncate(time.Second)
	if p.estimate == 0 {
		return min(most, 5*time.Second)
	}
	half := time.Duration(math.Ceil((p.estimate / 2).Seconds())) * time.Second
	return min(max(half, time.Second), most)
}

// sendPage answers with the page.
func (s *Handler) sendPage(w http.ResponseWriter, r *http.Request, v *visit, place shownPlace, refresh time.Duration) error {
	language := chooseLanguage(r.Header.Values("Accept-Language"))
	text, err := s.WaitingPage.page.render(language, place, int(refresh.Seconds()))
	if err != nil {
		return v.fail(caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("waiting page: %w", err)))
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", language)
	h.Set("Content-Security-Policy", s.WaitingPage.page.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", s.retryAfter(v.queue, max(place.place-1, 0), time.Now()))
	h.Set("Refresh", strconv.Itoa(int(refresh.Seconds())))
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, err = w.Write(text)
	return err
}
