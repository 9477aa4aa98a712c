package serialize

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/connection"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/deadlines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/heldbody"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// isNavigation reports whether a request is a browser's navigation, or from the script of
// the waiting page. A page in a frame gets no cookies of other sites, and one that is
// fetched ahead may never be shown. They wait with an open connection.
func (v *visit) isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet || sendsBody(r) {
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
	if held, ok := r.Body.(*heldbody.Body); ok && held.Ended() {
		return !held.IsEmpty()
	}
	return hasBody(r) && (r.ProtoMajor < 3 || r.ContentLength > 0)
}

func isAbsentOr(value, wanted string) bool { return value == "" || value == wanted }

// acceptsHTML reports whether HTML is asked for by name: programs accept anything.
func acceptsHTML(accept []string) bool {
	for text := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(text, ";")
		if strings.EqualFold(strings.TrimSpace(name), "text/html") && webpage.QualityParam(params) > 0 {
			return true
		}
	}
	return false
}

// serveNavigation is ServeHTTP for a browser's navigation.
func (s *Handler) serveNavigation(w http.ResponseWriter, r *http.Request, v *visit, next caddyhttp.Handler) error {
	queue := s.waitingQueue(v.queue, v.age.Reader)
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
	v.openHold(r)
	k, place, err := v.takeTurnOrPlace(w, r, queue, k, lost)
	switch {
	case errors.Is(err, errStillWaiting):
		v.cancel(nil)
		cookies.give(w, r, k)
		return s.sendPage(w, r, v, place, place.Refresh(k.hold))
	case err != nil:
		v.cancel(nil)
		cookies.take(w, r)
		return s.refuse(w, r, v, err)
	}
	cookies.take(w, r)
	defer keptTickets.forget(k)
	return v.serve(w, r, next)
}

var (
	errStillWaiting = errors.New("still waiting") // the browser is to get the page
	errNoTicket     = errors.New("no ticket")     // the ticket has ended meanwhile
)

// takeTurnOrPlace takes the turn of a browser's ticket, or of a new one if it has none.
// If it still waits, it returns the place to show.
func (v *visit) takeTurnOrPlace(w http.ResponseWriter, r *http.Request, queue waitingQueue, k *keptTicket, lost bool) (*keptTicket, waitingpage.Place, error) {
	for {
		if k == nil {
			engine, err := v.handler.acquireEngine()
			if err != nil {
				return nil, waitingpage.Place{}, err
			}
			k = v.handler.newKeptTicket(r, v, queue, engine)
			k.lost = lost
			if err := v.awaitTurn(w, r, k); !errors.Is(err, errStillWaiting) {
				return k, waitingpage.Place{}, err
			}
		}
		place, err := v.takeTurnOrPlaceOf(k)
		if !errors.Is(err, errNoTicket) {
			return k, place, err
		}
		k, lost = nil, lost || keptTickets.stateOf(k) == keptOver
	}
}

// takeTurnOrPlaceOf takes the turn of a ticket, or returns the place of one that
// still waits. It tries again if the turn comes while it finds the place.
func (v *visit) takeTurnOrPlaceOf(k *keptTicket) (place waitingpage.Place, err error) {
	for {
		if err = v.takeTurnOf(k); !errors.Is(err, errStillWaiting) {
			return place, err
		}
		place = k.shown()
		place.Lost = k.lost
		if keptTickets.expect(k, place.Refresh(k.hold)) {
			return place, err
		}
	}
}

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
	switch keptTickets.stateOf(k) {
	case keptUsed, keptOver:
		return errNoTicket
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
	clocks := deadlines.Stop(w, r, time.Duration(*s.Timeout))
	client := connection.Watch(r)
	span := v.startWait(r.Context())
	changes := keptTickets.watch(k, k.arrived)
	defer func() {
		client.Unwatch()
		clocks.Restart(time.Since(k.arrived))
		if errors.Is(err, errStillWaiting) {
			v.endKept(span)
			return
		}
		v.endWait(span, err)
	}()
	timer := time.NewTimer(time.Duration(*s.WaitingPage.After))
	defer timer.Stop()
	for {
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
			case place.Turn: // the turn is on its way to this request
				timer.Reset(time.Millisecond)
			case keptTickets.keep(k, changes):
				return errStillWaiting
			default:
				timer.Reset(askAgain)
			}
		}
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
// browser brings. To see it is of no use to anybody but its browser, so the number
// needs no secret.
func (s *Handler) placeElsewhere(queue string, tokens []uint64) (place waitingpage.Place, ok bool) {
	tokens = slices.DeleteFunc(slices.Clone(tokens), func(token uint64) bool { return token == 0 })
	if len(tokens) == 0 || !s.engine.acquire() {
		return waitingpage.Place{}, false
	}
	defer s.releaseEngine(s.engine)
	places := &s.engine.places
	places.read(s.engine.sharedEngine)
	t, ok := places.remote(queue, tokens)
	if !ok { // it may be younger than the latest reading
		places.readSince(s.engine.sharedEngine, time.Now())
		t, ok = places.remote(queue, tokens)
	}
	return waitingpage.Place{Place: t.place, Turn: t.inside, Paused: t.paused}, ok
}

// sendPage answers with the page.
func (s *Handler) sendPage(w http.ResponseWriter, r *http.Request, v *visit, place waitingpage.Place, refresh time.Duration) error {
	language := waitingpage.ChooseLanguage(r.Header.Values("Accept-Language"))
	text, err := s.WaitingPage.page.Render(language, place, int(refresh.Seconds()))
	if err != nil {
		return v.fail(caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("waiting page: %w", err)))
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", language)
	h.Set("Content-Security-Policy", s.WaitingPage.page.Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", s.retryAfter(v.queue, max(place.Place-1, 0), time.Now()))
	h.Set("Refresh", strconv.Itoa(int(refresh.Seconds())))
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, err = w.Write(text)
	return err
}
