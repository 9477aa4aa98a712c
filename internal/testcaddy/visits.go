package testcaddy

import (
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Browser is a client that keeps cookies, as those of people do.
type Browser struct {
	http.Client
	t   testing.TB
	url string
}

// NewBrowser returns a browser for a site, which has no cookies yet.
func NewBrowser(t testing.TB, url string) *Browser {
	jar, _ := cookiejar.New(nil)
	return &Browser{http.Client{Jar: jar, CheckRedirect: StayHere, Timeout: 2 * wait.Patience}, t, url}
}

// Does sends a request. header is names and values in turn.
func (b *Browser) Does(method, path string, header ...string) Answer {
	b.t.Helper()
	return Do(&b.Client, newRequest(b.t, method, b.url+path, "", header...))
}

// visits has a visit after two pages: one for its cookie, and one with it.
func (b *Browser) visits(path string) {
	b.t.Helper()
	for range 2 {
		wait.Until(b.t, path+" is served", func() bool {
			return b.Does(http.MethodGet, path, "Accept", "text/html").StatusCode == http.StatusOK
		})
	}
}

// TestLostVisits tests visits whose lease is lost. engine is the name and the block of one, with SERVER for
// its server, and its ttl is 3s. Two Caddys share two places. The one that is cut off from the server
// cancels the requests of its visits before others enter, and its browsers get the page again.
func TestLostVisits(t *testing.T, engine, server string) {
	t.Helper()
	link, upstream := testrelay.Start(t, server), NewUpstream(t)
	site := "http://{$ADDR} {\nroute {\nserialize {\nconcurrency 2\nvisit 10m\nwaiting_page {\nafter 0\nhold 1m\n}\nengine " + engine + "\n}\n" +
		"header /leave Orderly-Leave 1\nreverse_proxy " + upstream.Addr + " {\nheader_up X-Token {http.serialize.token}\n}\n}\n}\n"
	start := func(server string) (url string) {
		addr := testprocess.FreeAddr(t)
		Start(t, strings.Replace(site, "SERVER", server, 1), "ADDR="+addr)
		return "http://" + addr
	}
	cut, other := start(link.Addr), start(server)
	works, idle, next, last := NewBrowser(t, cut), NewBrowser(t, cut), NewBrowser(t, other), NewBrowser(t, other)
	works.visits("/one")
	idle.visits("/two")
	answers := make(chan Answer, 1)
	go func() { answers <- works.Does(http.MethodPost, "/work?gate") }()
	wait.Until(t, "work has entered", func() bool { return upstream.Hit("work") != nil })
	if a := next.Does(http.MethodGet, "/three", "Accept", "text/html"); a.Header.Get("Refresh") == "" {
		t.Errorf("answer %v; expected the page", a)
	}
	link.Part(true)
	Await(t, answers).Want(t, http.StatusGatewayTimeout)
	if a := idle.Does(http.MethodPost, "/buy"); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("answer %v; expected 503", a)
	}
	next.visits("/three")
	last.visits("/four")
	link.Part(false)
	wait.Until(t, "the browser gets the page again", func() bool {
		return works.Does(http.MethodGet, "/five", "Accept", "text/html").Header.Get("Refresh") != ""
	})
	next.Does(http.MethodPost, "/leave")
	works.visits("/five")
	turns := make(Turns)
	for _, v := range upstream.Hits() {
		turns.Saw(v.Header.Get("X-Token"), v.Entered)
		turns.Saw(v.Header.Get("X-Token"), v.Left)
	}
	if most := turns.MostAtOnce(); most > 2 {
		t.Errorf("%d turns were inside; expected 2 at most", most)
	}
	upstream.WantNever("buy")
}
