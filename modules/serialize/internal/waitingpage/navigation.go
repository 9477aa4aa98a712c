package waitingpage

import (
	"cmp"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Navigation is a browser's request at a queue, as its handler knows it.
type Navigation struct {
	serializer.Arrival
	About    *telemetry.Request
	Report   *telemetry.Reporter
	Capacity int // how many may be inside; 0 is not known
	Page     *Page
	Space    string                 // where the queue is kept
	Acquire  func() (Engine, error) // for a ticket
}

// askHeader marks a question of the page's script for the place. A page of another site
// cannot send it.
const askHeader = "Orderly-Place"

const htmlType = "text/html"

// Serves reports whether a request is a browser's navigation, or from the script of the
// page. A page in a frame gets no cookies of other sites, and one that is fetched ahead may
// never be shown. They wait with an open connection, and so does a GET with a body, which
// no browser sends, and a browser that refuses cookies.
func Serves(r *http.Request) bool {
	h := r.Header
	if r.Method != http.MethodGet || r.ContentLength > 0 || !Accepts(h, htmlType) {
		return false
	}
	return h.Get(askHeader) != "" || isNavigation(h) && (len(taken(r)) > 0 || hasCookie(r) || !isFromItself(r))
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
		name, params, _ := mime.ParseMediaType(media)
		if q := params["q"]; name == wanted && (q == "" || strings.Trim(q, "0.") != "") {
			return true
		}
	}
	return false
}

// isFromItself reports whether a navigation comes from a page with the same address. A
// reload of the waiting page is one: if it has no cookie, the browser refuses cookies. A
// browser that follows a link to the page that it is on is taken for one, too.
func isFromItself(r *http.Request) bool {
	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	from, err := url.Parse(r.Referer())
	return ok && err == nil && from.Host == r.Host && from.RequestURI() == original.URL.RequestURI()
}

// ErrAnswered means that a request that waits for its turn has been answered for now.
var ErrAnswered = errors.New("the browser waits with the page")

// Wait waits for the turn of a request that the page serves, for a while. It returns the
// turn of the browser's ticket, and the engine to release afterwards. The error may be
// [ErrAnswered].
func (b *Book) Wait(w http.ResponseWriter, r *http.Request, n *Navigation) (Engine, serializer.Turn, error) {
	t := b.find(r, n.Space, n.Queue)
	if r.Header.Get(askHeader) != "" {
		b.endCookies(w, r)
		return nil, nil, answerPlace(w, r, t)
	}
	turn, err := t.claim(n)
	lost := errors.Is(err, errAway)
	if lost || errors.Is(err, errNone) {
		if t, err = b.join(r.Context(), n, lost); err != nil {
			return nil, nil, err
		}
		t.open(w, r, n.Page.after)
		turn, err = t.claim(n)
		t.depart()
	}
	b.endCookies(w, r)
	if errors.Is(err, errWaiting) {
		return nil, nil, n.send(w, r, t, lost)
	}
	return t.engine, turn, err
}

// open waits with the request for which the ticket was taken, until it is decided or can
// tell its place. If the client hangs up, the ticket leaves.
func (t *Ticket) open(w http.ResponseWriter, r *http.Request, atMost time.Duration) {
	defer turncontext.StopTimeouts(w, r)()
	t.await(r.Context(), atMost)
	t.Place()
	if err := r.Context().Err(); err != nil {
		t.mu.Lock()
		t.wait.GiveUp(err)
		t.mu.Unlock()
		<-t.decision
	}
}

// answerPlace answers the script of a page. A browser may have no ticket.
func answerPlace(w http.ResponseWriter, r *http.Request, t *Ticket) error {
	restart := turncontext.StopTimeouts(w, r)
	var text []byte
	switch {
	case t == nil:
		text = []byte(`{"gone":true}`)
	case t.await(r.Context(), askTime):
		text = []byte(`{"turn":true}`)
	default:
		text, _ = json.Marshal(t.Place())
		t.setCookie(w, r)
	}
	restart()
	return answer(w, http.StatusOK, "application/vnd.orderly.place+json", text)
}

// send answers with the page.
func (n *Navigation) send(w http.ResponseWriter, r *http.Request, t *Ticket, lost bool) error {
	data := Data{Place: t.Place(), Lost: lost, Refresh: int(refreshTime.Seconds())}
	data.Lang, data.Text = Texts(r.Header.Values("Accept-Language"))
	text, err := n.Page.render(data)
	if err != nil {
		return err
	}
	t.setCookie(w, r)
	h := w.Header()
	h.Set("Content-Language", data.Lang)
	h.Set("Content-Security-Policy", Policy())
	h.Set("Referrer-Policy", "same-origin") // for isFromItself
	h.Set("Retry-After", strconv.Itoa(data.Refresh))
	h.Set("Refresh", strconv.Itoa(data.Refresh))
	return answer(w, n.Page.status, htmlType+"; charset=utf-8", text)
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
