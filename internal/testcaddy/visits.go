package testcaddy

import (
	"cmp"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// browser keeps cookies, as those of people do.
type browser struct {
	t      testing.TB
	url    string
	client http.Client
}

func newBrowser(t testing.TB, url string) *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{t, url, http.Client{Jar: jar, Timeout: wait.Patience}}
}

func (b *browser) does(method, path string) Answer {
	return Do(&b.client, newRequest(b.t, method, b.url+path, "", "Accept", "text/html"))
}

// enters opens a page until its turn has come.
func (b *browser) enters(path string) {
	b.t.Helper()
	wait.Until(b.t, path+" is served", func() bool { return b.does(http.MethodGet, path).StatusCode == http.StatusOK })
}

// visits has a visit after two pages: one for its cookie, and one with it.
func (b *browser) visits(path string) {
	b.t.Helper()
	b.enters(path)
	b.enters(path)
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
	works, idle, next, last := newBrowser(t, cut), newBrowser(t, cut), newBrowser(t, other), newBrowser(t, other)
	works.visits("/one")
	idle.visits("/two")
	answers := make(chan Answer, 1)
	go func() { answers <- works.does(http.MethodPost, "/work?gate") }()
	upstream.AwaitEntry("work")
	if a := next.does(http.MethodGet, "/three"); a.Header.Get("Refresh") == "" {
		t.Errorf("answer %v; expected the page", a)
	}
	link.Part(true)
	Await(t, answers).Want(t, http.StatusGatewayTimeout)
	if a := idle.does(http.MethodPost, "/buy"); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("answer %v; expected 503", a)
	}
	next.visits("/three")
	last.visits("/four")
	link.Part(false)
	wait.Until(t, "the browser gets the page again", func() bool { return works.does(http.MethodGet, "/five").Header.Get("Refresh") != "" })
	next.does(http.MethodPost, "/leave")
	works.visits("/five")
	turns := make(map[string]*Span)
	upstream.each(func(v Hit) {
		token := v.Header.Get("X-Token")
		turns[token] = cmp.Or(turns[token], &Span{First: v.Entered})
		if turns[token].Latest.Before(v.Left) {
			turns[token].Latest = v.Left
		}
	})
	if most := MostAtOnce(turns); most > 2 {
		t.Errorf("%d turns were inside; expected 2 at most", most)
	}
	upstream.WantNever("buy")
}
