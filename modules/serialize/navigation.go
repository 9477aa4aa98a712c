package serialize

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// places are the tickets of browsers that wait without a connection. They outlive a
// configuration.
var places = sync.OnceValue(waitingpage.NewBook)

// askHeader marks a question of the page's script for the place. A page of another site
// cannot send it.
const askHeader = "Orderly-Place"

const htmlType = "text/html"

// isNavigation reports whether a request is a browser's navigation, or from the script of
// the waiting page. A page in a frame gets no cookies of other sites, and one that is
// fetched ahead may never be shown. They wait with an open connection, and so does a GET
// with a body, which no browser sends.
func isNavigation(r *http.Request) bool {
	h := r.Header
	if r.Method != http.MethodGet || r.ContentLength > 0 || !acceptsHTML(h.Values("Accept")) {
		return false
	}
	return h.Get(askHeader) != "" || h.Get("Sec-Purpose") == "" &&
		isEmptyOr(h.Get("Sec-Fetch-Mode"), "navigate") && isEmptyOr(h.Get("Sec-Fetch-Dest"), "document")
}

// acceptsHTML reports whether HTML is asked for by name: programs accept anything.
func acceptsHTML(accept []string) bool {
	for text := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(text, ";")
		if strings.EqualFold(strings.TrimSpace(name), htmlType) && webpage.QualityParam(params) > 0 {
			return true
		}
	}
	return false
}

func isEmptyOr(value, wanted string) bool { return value == "" || value == wanted }

// serveNavigation serves a browser's navigation: it waits for a while, gets the page, and
// comes again for its turn.
func (v *visit) serveNavigation(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	t, sent := places().Find(r, v.placeQueue())
	if r.Header.Get(askHeader) != "" {
		return v.answerPlace(w, r, t)
	}
	if !sent && isFromItself(r) {
		if err := v.wait(w, r); err != nil {
			return v.refuse(w, r, next, err)
		}
		return v.serve(w, r, next)
	}
	v.openContext(r)
	err := waitingpage.ErrNone
	if t != nil {
		err = v.claim(t)
	}
	lost := errors.Is(err, waitingpage.ErrAway)
	if lost || errors.Is(err, waitingpage.ErrNone) {
		t, err = v.join(w, r)
	}
	if err == nil {
		return v.serve(w, r, next)
	}
	v.cancel(nil)
	switch {
	case errors.Is(err, waitingpage.ErrWaiting):
		return v.sendPage(w, r, t, lost)
	case errors.Is(err, waitingpage.ErrAway): // its client has hung up
		v.failure = caddyhttp.Error(statusClientClosed, err)
		return v.failure
	}
	return v.refuse(w, r, next, err)
}

// isFromItself reports whether a navigation comes from a page with the same address. A
// reload of the waiting page is one: if it has no cookie, the browser refuses cookies, and
// has to wait with its connection. So does a browser that follows a link to the page that
// it is on.
func isFromItself(r *http.Request) bool {
	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	from, err := url.Parse(r.Referer())
	return ok && err == nil && from.Host == r.Host && from.RequestURI() == original.URL.RequestURI()
}

// placeQueue distinguishes the queues in cookies.
func (v *visit) placeQueue() string { return v.handler.engine.space + "\x00" + v.about.Queue }

// claim takes over the turn of a browser's ticket. One of a line that lets in more is of
// no use: others may be inside where this request has to be alone.
func (v *visit) claim(t *waitingpage.Ticket) error {
	k := t.Caller.(*browser)
	if !k.rule.AsStrictAs(v.rule) {
		return waitingpage.ErrNone
	}
	turn, err := t.Claim(v.revoke)
	if errors.Is(err, waitingpage.ErrWaiting) {
		return err
	}
	v.about.Waited, v.about.Since = cmp.Or(k.about.Waited, time.Since(k.about.Since)), time.Now()
	if err == nil {
		k.stopCounting(nil)
		k.heir.Store(v)
		v.engine = k.engine
		v.take(turn)
	}
	return err
}

// join takes a ticket for a browser, waits for a while, and takes its turn if that has come.
func (v *visit) join(w http.ResponseWriter, r *http.Request) (*waitingpage.Ticket, error) {
	s := v.handler
	engine, err := s.engine.acquire()
	if err != nil {
		return nil, err
	}
	defer response.StopTimeouts(w, r)()
	t := places().Join(engine.Engine, v.arrival(r), time.Duration(*s.WaitingPage.Hold), v.newBrowser(engine, r))
	t.Await(r.Context(), time.Duration(*s.WaitingPage.After))
	engine.places.Of(t, engine.Engine) // unless its turn comes at once
	return t, v.claim(t)
}

// browser is what a ticket without a connection has in place of a visit. It is small, since
// many may wait.
type browser struct {
	handler *Handler
	engine  *engineRef // with a reference until the ticket has ended, or its turn is over
	rule    serializer.Rule
	about   telemetry.Request // waited until the turn came
	heir    atomic.Pointer[visit]
}

// maxText bounds what a client can make a ticket take, in bytes.
const maxText = 256

func (v *visit) newBrowser(engine *engineRef, r *http.Request) *browser {
	k := &browser{handler: v.handler, engine: engine, rule: v.rule, about: v.about}
	k.about.Described = v.Request()
	k.about.ID = nil
	// Each text is a part of what the client sent, and would keep the whole.
	for _, text := range []*string{&k.about.Described.Method, &k.about.Described.Host, &k.about.Described.Path, &k.about.Described.ClientIP} {
		*text = strings.ToValidUTF8(strings.Clone((*text)[:min(len(*text), maxText)]), "")
	}
	v.handler.report.Waits(r.Context(), &k.about)
	return k
}

// Request implements [serializer.Requester].
func (k *browser) Request() serializer.Request { return k.about.Request() }

// RevokedAt implements [waitingpage.Caller].
func (k *browser) RevokedAt() time.Time {
	if heir := k.heir.Load(); heir != nil {
		return heir.RevokedAt()
	}
	return time.Time{}
}

// Turn implements [waitingpage.Caller]. From then on, the ticket counts as inside.
func (k *browser) Turn(turn serializer.Turn) error {
	if err := k.engine.checkRivals(k.about.Queue, turn); err != nil {
		return err
	}
	k.about.Token, k.about.Position = turn.Token(), turn.Position()
	k.handler.report.Waited(&k.about, nil)
	k.handler.report.Inside.Add(1)
	k.handler.report.Holds.Insert(&k.about.Entry, k.about.Since)
	return nil
}

// End implements [waitingpage.Caller].
func (k *browser) End(why error) {
	k.stopCounting(why)
	if errors.Is(why, waitingpage.ErrAway) {
		k.handler.report.Count(string(serializer.ReasonGone))
	}
	k.engine.release()
}

func (k *browser) stopCounting(why error) {
	if k.about.Token != 0 { // it is inside
		k.handler.report.Inside.Add(-1)
		k.handler.report.Holds.Remove(&k.about.Entry)
		return
	}
	k.handler.report.Waited(&k.about, why)
}

// answerPlace answers the script of a page. A browser may have no ticket.
func (v *visit) answerPlace(w http.ResponseWriter, r *http.Request, t *waitingpage.Ticket) error {
	var text []byte
	switch {
	case t == nil:
		text = []byte(`{"gone":true}`)
	case t.Ask(r.Context()):
		text = []byte(`{"turn":true}`)
	default:
		text, _ = json.Marshal(v.placeOf(t))
	}
	return answer(w, http.StatusOK, "application/vnd.orderly.place+json", text)
}

// placeOf is where a ticket stands, with a guess of how long it will wait.
func (v *visit) placeOf(t *waitingpage.Ticket) waitingpage.Place {
	k := t.Caller.(*browser)
	place := k.engine.places.Of(t, k.engine.Engine)
	place.Wait = k.handler.report.Guess(v.about.Queue, place.Number, k.handler.capacity)
	return place
}

// sendPage answers with the page.
func (v *visit) sendPage(w http.ResponseWriter, r *http.Request, t *waitingpage.Ticket, lost bool) error {
	s := v.handler
	data := waitingpage.Data{Place: v.placeOf(t), Lost: lost, Refresh: int(t.Refresh().Seconds())}
	data.Lang, data.Text = waitingpage.Texts(r.Header.Values("Accept-Language"))
	text, err := s.WaitingPage.page.Render(data)
	if err != nil {
		v.failure = caddyhttp.Error(http.StatusServiceUnavailable, err)
		return v.failure
	}
	keep := 0
	if timeout := time.Duration(*s.Timeout); timeout > 0 {
		keep = int((timeout + time.Duration(*s.WaitingPage.Hold)).Seconds()) + 1
	}
	http.SetCookie(w, places().Cookie(r, t, v.placeQueue(), keep))
	h := w.Header()
	h.Set("Content-Language", data.Lang)
	h.Set("Content-Security-Policy", waitingpage.Policy())
	h.Set("Referrer-Policy", "same-origin") // for isFromItself
	h.Set("Retry-After", s.report.RetryAfter(v.about.Queue, max(data.Number-1, 0), s.capacity, time.Now()))
	h.Set("Refresh", strconv.Itoa(data.Refresh))
	return answer(w, http.StatusServiceUnavailable, htmlType+"; charset=utf-8", text)
}

// answer sends a text that nobody may keep.
func answer(w http.ResponseWriter, status int, contentType string, text []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(text)
	return err
}

// Interface guards
var _ waitingpage.Caller = (*browser)(nil)
