package waitingpage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Line is what a line of the configuration says of the browsers in its queues.
type Line struct {
	Space    string // where the queues are kept
	Page     *Page  // nil: browsers wait as all others do
	Report   *telemetry.Reporter
	Capacity int // how many may be inside; 0 is not known
	Rule     serializer.Rule
	Slots    func() []string // nil unless each inside has a slot
	Visits   *Visits         // nil unless turns are visits
	Opens    time.Time       // when places are given; zero: always
}

// Serves reports whether a request gets the page while it waits, or its place as JSON.
func (l *Line) Serves(r *http.Request) bool {
	return l.Page != nil && (isOfBrowser(r) || l.Page.isJSON(r))
}

// Navigation is a browser's request at a queue, as its handler knows it.
type Navigation struct {
	serializer.Arrival
	Line    *Line
	About   *telemetry.Request
	Engine  *engines.Ref
	Opening *Opening // of the queue, or nil
	Chance  string   // whose chance the browser has at the opening; empty: its own
	shown   bool     // the browser shows the answer
	Part    *Part    // the result of [Book.Wait] if the request has a part in a visit
}

// askHeader marks a question of the page's script for the place. A page of another site
// cannot send it.
const askHeader = "Orderly-Place"

const (
	htmlType = "text/html"
	jsonType = "application/json"
)

// isOfBrowser reports whether a request is a browser's navigation, or from the script of the
// page. A page in a frame gets no cookies of other sites, and one that is fetched ahead may
// never be shown. They wait with an open connection, and so does a GET with a body, which
// no browser sends.
func isOfBrowser(r *http.Request) bool {
	h := r.Header
	if r.Method != http.MethodGet || r.ContentLength > 0 || !Accepts(h, htmlType) {
		return false
	}
	return h.Get(askHeader) != "" || isNavigation(h)
}

// isJSON reports whether a request is from a program that asks for its place. Scripts of pages
// accept more than JSON, unless somebody has written it so.
func (p *Page) isJSON(r *http.Request) bool {
	return p.json && r.Method == http.MethodGet && r.ContentLength <= 0 && slices.Equal(r.Header["Accept"], []string{jsonType})
}

// isNavigation reports whether a page is asked for to be shown now. Where browsers do not
// send Sec-Fetch-Mode, as over plain HTTP, the fields of scripts decide. Where they do, such
// a field means nothing: Android's web views send X-Requested-With with every page.
func isNavigation(h http.Header) bool {
	mode, has := h.Get("Sec-Fetch-Mode"), func(field string) bool { return len(h[field]) > 0 }
	return cmp.Or(mode, "navigate") == "navigate" && cmp.Or(h.Get("Sec-Fetch-Dest"), "document") == "document" &&
		!slices.ContainsFunc(prefetchFields, has) && (mode != "" || !slices.ContainsFunc(scriptFields, has))
}

// Fields by which prefetches and scripts say what they are.
var (
	prefetchFields = []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"}
	scriptFields   = []string{"X-Requested-With", "Hx-Request", "Turbo-Frame", "X-Pjax"}
)

// Accepts reports whether a media type is asked for by name: programs accept anything.
func Accepts(h http.Header, wanted string) bool {
	for media := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		if name, _, _ := strings.Cut(media, ";"); strings.EqualFold(strings.TrimSpace(name), wanted) {
			return true
		}
	}
	return false
}

// ErrAnswered means that a request that waits for its turn has been answered for now.
var ErrAnswered = errors.New("the browser waits with the page")

// Wait waits for the turn of a request that the page serves, for a while. It returns the
// turn of the browser's ticket, and the engine to release afterwards. The error may be
// [ErrAnswered]. Where turns are visits, other requests of a known browser wait, too, until its
// turn comes. If they get a Part in its visit, nothing is to be released.
func (b *Book) Wait(w http.ResponseWriter, r *http.Request, n *Navigation) (*engines.Ref, serializer.Turn, error) {
	k := b.find(r, n.Line.Space, n.Queue)
	t := k.ticket
	if n.Opening == nil && t != nil {
		if moment, closed := t.opening.Closed(); closed && moment.IsZero() { // no line had the prefix for a while, and this one has none
			b.MoveOpening(n.Line.Space, t.Prefix(), n.Line)
		}
	}
	_, closed := n.Opening.Closed()
	if r.Header.Get(askHeader) != "" {
		return nil, nil, answerPlace(w, r, k)
	}
	n.shown = n.Line.Visits == nil || n.Line.Serves(r)
	patience := n.patience(r, k)
	turn, err := t.claim(n)
	lost := errors.Is(err, errAway)
	switch {
	case lost || errors.Is(err, errNone):
		id := k.id
		if n.Line.Visits == nil && !closed {
			id = "" // see Book
		}
		if t, err = b.join(r.Context(), n, id, lost || id != ""); err != nil {
			return nil, nil, err
		}
		t.open(w, r, patience)
		turn, err = t.claim(n)
		t.locked(t.departLocked)
	case errors.Is(err, errWaiting) && patience == forEver:
		restart := turncontext.StopTimeouts(w, r)
		t.await(r.Context(), forEver)
		restart()
		turn, err = t.claim(n)
	}
	if errors.Is(err, errNone) {
		err = t.verdict()
	}
	b.endCookies(w, r)
	switch {
	case n.Part != nil:
		t.setCookie(w, r, k, visitor)
	case err == nil && n.Line.Visits != nil:
		// A browser without a cookie has a turn of one request, and gets one. While more than half of the
		// places are taken, it gets the page first: programs without cookies then hold nothing.
		if 2*turn.Position() > n.Line.Capacity {
			turn.Leave()
			t.engine.Release()
			return nil, nil, n.send(w, r, t, known{}, Place{}, false)
		}
		t.setCookie(w, r, known{}, newcomer)
	case errors.Is(err, errWaiting) && !n.shown: // its client has hung up
		return nil, nil, &serializer.Refused{Reason: serializer.ReasonGone, Queue: n.Queue, Err: context.Cause(r.Context())}
	case errors.Is(err, errWaiting):
		return nil, nil, n.send(w, r, t, k, t.Place(), lost)
	}
	return t.engine, turn, err
}

// forEver is a patience that only the ticket's own timeout ends.
const forEver time.Duration = math.MaxInt64

// patience is for how long a request waits with an open connection before it gets the page. Where
// turns are visits, a browser without a cookie gets the page at once: it could not have a visit.
// A request that is no navigation never gets it.
func (n *Navigation) patience(r *http.Request, k known) time.Duration {
	switch {
	case !n.shown:
		return forEver
	case n.Line.Visits != nil && k.id == "" || n.Line.Page.isJSON(r):
		return 0
	}
	return n.Line.Page.after
}

// open waits with the request for which the ticket was taken, until it is decided or can
// tell its place. If the client hangs up, the ticket leaves, unless the browser has other
// requests under way.
func (t *Ticket) open(w http.ResponseWriter, r *http.Request, atMost time.Duration) {
	if t.isRegistered() {
		return
	}
	defer turncontext.StopTimeouts(w, r)()
	if t.await(r.Context(), atMost); atMost < forEver {
		t.Place()
	}
	if err := r.Context().Err(); err != nil && t.giveUp(err) {
		<-t.decision
	}
}

// giveUp gives the place up for the last request of the browser.
func (t *Ticket) giveUp(why error) (last bool) {
	t.locked(func() {
		if last = t.here <= 1; last {
			t.wait.GiveUp(why)
		}
	})
	return last
}

// answerPlace answers the script of a page. A browser may have no ticket. If it is known
// nevertheless, its page came first because many places are taken, and a reload takes a ticket.
func answerPlace(w http.ResponseWriter, r *http.Request, k known) error {
	restart := turncontext.StopTimeouts(w, r)
	t, text := k.ticket, []byte(`{"turn":true}`)
	switch {
	case t == nil && k.id == "":
		text = []byte(`{"gone":true}`)
	case t != nil && !t.isVisit(): // which lasts by what the upstream gets
		t.locked(t.arriveLocked)
		defer t.locked(t.departLocked)
		// Before an opening, the question is held until the next contact is due, unless that is long: timers of
		// tabs that nobody looks at are late.
		place, _ := t.registeredPlace()
		if place.Ask > 0 || !t.await(r.Context(), cmp.Or(place.next, askTime)) {
			text, _ = json.Marshal(t.Place())
			t.setCookie(w, r, k, newcomer)
		}
	}
	restart()
	return answer(w, http.StatusOK, "application/vnd.orderly.place+json", text)
}

// send answers with the page, or a program with its place. What is not known of that is null.
func (n *Navigation) send(w http.ResponseWriter, r *http.Request, t *Ticket, k known, place Place, lost bool) error {
	t.setCookie(w, r, k, newcomer)
	data, h := Data{Place: place, Lost: lost, Refresh: place.refresh()}, w.Header()
	h.Set("Retry-After", strconv.Itoa(data.Refresh))
	if n.Line.Page.isJSON(r) {
		text, _ := json.Marshal(struct {
			Place  any  `json:"place"`
			Wait   any  `json:"wait_seconds"`
			Paused bool `json:"paused"`
			Opens  any  `json:"opens"`
		}{notZero(place.Number), notZero(place.Wait), place.Paused, notZero(place.Opens)})
		return answer(w, n.Line.Page.status, jsonType, text)
	}
	data.Lang, data.Text = Texts(r.Header.Values("Accept-Language"))
	text, err := n.Line.Page.render(data)
	if err != nil {
		return err
	}
	h.Set("Content-Language", data.Lang)
	h.Set("Content-Security-Policy", Policy())
	h.Set("Refresh", strconv.Itoa(data.Refresh))
	return answer(w, n.Line.Page.status, htmlType+"; charset=utf-8", text)
}

// notZero is nil for a zero value.
func notZero[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// answer sends a text that nobody may keep, and returns ErrAnswered.
func answer(w http.ResponseWriter, status int, contentType string, text []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error: its client has gone
	return ErrAnswered
}
