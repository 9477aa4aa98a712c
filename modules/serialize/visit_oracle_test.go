package serialize

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

var (
	visitBrowsers = flag.Int("visits", 60, "how many browsers TestVisits has")
	visitPlaces   = flag.Int("visits.places", 6, "how many may be inside in TestVisits")
	visitsFor     = flag.Duration("visits.for", 4*time.Second, "how long TestVisits runs")
)

// shop is a site whose turns are visits, and counts them: not its requests.
type shop struct {
	*testing.T
	server  *httptest.Server
	current atomic.Pointer[Handler]
	idle    time.Duration
	hold    time.Duration // of the page
	path    string
	engine  string
	change  func(*Handler) // of what is loaded, or nil

	mu       sync.Mutex
	visits   map[string]*testcaddy.Span // by token, also single turns
	requests map[string]int             // by token
	outcomes map[string]int
}

func newShop(t *testing.T, places int, idle time.Duration) *shop {
	t.Helper()
	s := &shop{T: t, idle: idle, hold: 3 * time.Second, path: t.TempDir(), engine: "memory", visits: make(map[string]*testcaddy.Span), requests: make(map[string]int), outcomes: make(map[string]int)}
	s.load(places)
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	t.Cleanup(s.server.CloseClientConnections)
	return s
}

// load loads a configuration, and retires the one before.
func (s *shop) load(places int) {
	s.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	page := &WaitingPage{JSON: true, After: new(caddy.Duration), Hold: new(caddy.Duration(s.hold))}
	h := &Handler{
		Path: s.path, Prefix: s.Name(), EngineRaw: []byte(`{"engine": "` + s.engine + `"}`), Timeout: new(caddy.Duration), WaitingPage: page,
		Concurrency: places, Visit: &Visit{Idle: caddy.Duration(s.idle), Longest: caddy.Duration(20 * s.idle)},
	}
	if s.change != nil {
		s.change(h)
	}
	must(s, h.Provision(ctx))
	h.engine.Replaces = ctx // it is the active one, until its Cleanup
	h.report.Logger = zap.NewNop()
	s.Cleanup(cancel)
	if before := s.current.Swap(h); before != nil {
		_ = before.Cleanup()
	} else {
		s.Cleanup(func() { _ = s.current.Load().Cleanup() })
	}
}

// ServeHTTP serves a request as Caddy does.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	err := s.current.Load().ServeHTTP(w, r, caddyhttp.HandlerFunc(s.upstream))
	if err == nil {
		return
	}
	failed, _ := errors.AsType[caddyhttp.HandlerError](err)
	reason, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.serialize.reason")
	w.Header().Set("Reason", reason)
	w.WriteHeader(cmp.Or(failed.StatusCode, http.StatusInternalServerError))
	_, _ = io.WriteString(w, err.Error())
}

// sends is what a browser sends to a site, without a network.
func sends(site http.Handler, cookies http.CookieJar, path string, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, "http://example.com"+path, nil), httptest.NewRecorder()
	r.Header.Set("Accept", "text/html")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for _, cookie := range cookies.Cookies(r.URL) {
		r.AddCookie(cookie)
	}
	site.ServeHTTP(w, r)
	cookies.SetCookies(r.URL, w.Result().Cookies())
	return w
}

// upstream notes which turn a request has.
func (s *shop) upstream(w http.ResponseWriter, r *http.Request) error {
	token, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.serialize.token")
	s.saw(token)
	work, _ := time.ParseDuration(r.URL.Query().Get("work"))
	select {
	case <-time.After(work):
	case <-r.Context().Done():
	case <-s.Context().Done():
	}
	s.saw(token)
	for _, field := range []string{leaveField, stayField} {
		if value := r.URL.Query().Get(field); value != "" {
			w.Header().Set(field, value)
		}
	}
	w.Header().Set("Token", token)
	w.Header().Set("Cache-Control", "public, max-age=60")
	_, err := io.WriteString(w, "the shop")
	return err
}

func (s *shop) saw(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits[token] = cmp.Or(s.visits[token], &testcaddy.Span{First: time.Now()})
	s.visits[token].Latest = time.Now()
	s.requests[token]++
}

// browser keeps cookies, and is used by one person.
type browser struct {
	shop   *shop
	client *http.Client
}

func (s *shop) newBrowser() *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{shop: s, client: &http.Client{Jar: jar, Timeout: wait.Patience}}
}

// answer is one of the shop's, in a word: the status, or the reason of a refusal, or "page".
type answer struct {
	*http.Response
	word, text string
}

// does sends a request of the browser. Without a context that ends, it has an answer.
func (b *browser) does(ctx context.Context, method, path string, header ...string) answer {
	r, err := http.NewRequestWithContext(ctx, method, b.shop.server.URL+path, nil)
	if err != nil {
		b.shop.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(r)
	if err != nil {
		return answer{word: "failed"}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	a := answer{resp, strconv.Itoa(resp.StatusCode), string(body)}
	switch {
	case err != nil:
		a.word = "cut"
	case resp.Header.Get("Reason") != "":
		a.word = resp.Header.Get("Reason")
	case resp.Header.Get("Refresh") != "":
		a.word = "page"
	}
	if resp.Header.Get(leaveField)+resp.Header.Get(stayField) != "" {
		b.shop.Errorf("the browser sees %v", resp.Header)
	}
	if b.shop.current.Load().Visit != nil && len(resp.Cookies()) > 0 && a.word == "200" && resp.Header.Get("Orderly-Place") == "" && resp.Header.Get("Token") != "" && resp.Header.Get("Cache-Control") != "private, no-store" {
		b.shop.Errorf("an answer with a cookie has Cache-Control %q", resp.Header.Get("Cache-Control"))
	}
	b.shop.mu.Lock()
	b.shop.outcomes[a.word]++
	b.shop.mu.Unlock()
	return a
}

func (b *browser) opens(ctx context.Context, path string) answer {
	return b.does(ctx, http.MethodGet, path, "Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
}

func (b *browser) part(ctx context.Context, path string) answer {
	return b.does(ctx, http.MethodGet, path, "Accept", "image/*", "Sec-Fetch-Mode", "no-cors")
}

// enters opens a page, and waits with the waiting page until the shop answers.
func (b *browser) enters(ctx context.Context, path string) (a answer) {
	for ctx.Err() == nil {
		if a = b.opens(ctx, path); a.word != "page" {
			return a
		}
		for ctx.Err() == nil {
			ask := b.does(ctx, http.MethodGet, path, "Accept", "text/html", "Orderly-Place", "ask")
			if ask.text == `{"turn":true}` || ask.text == `{"gone":true}` {
				break
			}
		}
	}
	return a
}

// visitsShop is what one person does there.
func (b *browser) visitsShop(ctx context.Context, random *rand.Rand) {
	for page := range 1 + random.IntN(4) {
		if a := b.enters(ctx, fmt.Sprintf("/page%d?work=%dms", page, random.IntN(10))); a.word != "200" {
			return
		}
		tokens := make(chan string, 10)
		var parts sync.WaitGroup
		for i := range cap(tokens) {
			parts.Go(func() {
				a := b.part(ctx, fmt.Sprintf("/part%d?work=%dms", i, i))
				tokens <- a.word
			})
		}
		parts.Wait()
		time.Sleep(time.Duration(random.Int64N(int64(b.shop.idle / 2)))) // thinks
	}
	switch random.IntN(8) {
	case 0:
		b.does(ctx, http.MethodPost, "/logout?"+leaveField+"=1")
	case 1: // a second tab
		var tabs sync.WaitGroup
		for range 2 {
			tabs.Go(func() { b.enters(ctx, "/tab?work=5ms") })
		}
		tabs.Wait()
	case 2: // comes back too late
		time.Sleep(2 * b.shop.idle)
		b.does(ctx, http.MethodPost, "/late")
	case 3: // shares its cookies with a program
		address, _ := url.Parse(b.shop.server.URL)
		thief := b.shop.newBrowser()
		thief.client.Jar.SetCookies(address, b.client.Jar.Cookies(address))
		thief.part(ctx, "/stolen?work=20ms")
	case 4: // forgets them
		b.client.Jar, _ = cookiejar.New(nil)
	case 5:
		b.does(ctx, http.MethodPost, "/pay?"+stayField+"="+fmt.Sprint(b.shop.idle.Seconds()))
	case 6: // hangs up
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		b.opens(short, "/?work=10ms")
		cancel()
	}
}

// Never more than the places are inside, whatever browsers, operators and reloads do: visits and
// single turns are counted, not requests.
func TestVisits(t *testing.T) {
	places := *visitPlaces
	s := newShop(t, places, 200*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), *visitsFor)
	defer cancel()
	var people sync.WaitGroup
	for i := range *visitBrowsers {
		people.Go(func() {
			random, b := rand.New(rand.NewPCG(1, uint64(i))), s.newBrowser()
			for ctx.Err() == nil {
				b.visitsShop(ctx, random)
			}
			b.client.CloseIdleConnections()
		})
	}
	people.Go(func() { // a program without cookies
		program := &browser{shop: s, client: &http.Client{Timeout: wait.Patience}}
		for ctx.Err() == nil {
			program.part(ctx, "/program")
			program.opens(ctx, "/program")
		}
	})
	people.Go(func() { s.operate(ctx, places) })
	people.Wait()
	wait.Until(t, "nobody is inside", func() bool { return s.evict(t.Context(), math.MaxInt) == 0 }) // a turn waits 30 s for its browser
	s.mu.Lock()
	defer s.mu.Unlock()
	most := testcaddy.MostAtOnce(s.visits)
	if most > places {
		t.Errorf("%d were inside; expected %d at most", most, places)
	}
	h := s.current.Load()
	if inside := h.report.Inside.Load(); inside != 0 {
		t.Errorf("%d are counted as inside", inside)
	}
	long := 0
	for _, requests := range s.requests {
		if requests > 10 {
			long++
		}
	}
	t.Logf("%d turns, of these %d of many requests, %d at once; answers: %v", len(s.visits), long, most, s.outcomes)
	for word := range s.outcomes {
		if !slices.Contains([]string{"200", "page", "visit_ended", "evicted", "504", "cut", "failed", "499", "gone"}, word) {
			t.Errorf("an answer %s", word)
		}
	}
	if long == 0 {
		t.Error("there was no visit")
	}
}

// operate reloads, pauses and evicts.
func (s *shop) operate(ctx context.Context, places int) {
	for step := 0; ctx.Err() == nil; step++ {
		time.Sleep(100 * time.Millisecond)
		h := s.current.Load()
		switch step % 4 {
		case 0:
			s.load(places * (1 + step/4%3) / 3)
		case 1:
			_ = h.engine.Pause(ctx, s.Name(), time.Now().Add(100*time.Millisecond))
		case 2:
			s.evict(ctx, 1)
		}
	}
}

// evict takes the first tickets out, and returns how many there were.
func (s *shop) evict(ctx context.Context, most int) (tickets int) {
	h := s.current.Load()
	for _, q := range h.engine.Known(func(name string) bool { return name == s.Name() }) {
		if most := max(*visitPlaces, q.Limit); q.Inside > most {
			s.Errorf("the list has %d inside; expected %d at most", q.Inside, most)
		}
		for _, t := range q.Tickets[:min(len(q.Tickets), most)] {
			token, _ := strconv.ParseUint(t.Token, 10, 64)
			_ = h.engine.Evict(ctx, s.Name(), token)
		}
		tickets = len(q.Tickets)
	}
	return tickets
}
