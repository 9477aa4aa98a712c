package serialize

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var (
	visitBrowsers = flag.Int("visits", 60, "how many browsers TestVisits has")
	visitPlaces   = flag.Int("visits.places", 6, "how many may be inside in TestVisits")
	visitsFor     = flag.Duration("visits.for", 4*time.Second, "how long TestVisits runs")
)

// shop is a site whose turns are visits. Its browsers use no network, so a test may have a clock of its own.
type shop struct {
	*testing.T
	current atomic.Pointer[Handler]
	path    string
	logger  *zap.Logger // of what is loaded

	mu      sync.Mutex
	turns   testcaddy.Turns // visits, and those of single requests
	answers map[string]int  // by word
}

// newShop loads a queue in memory. One may be inside. A visit may be idle for a minute, and lasts for an hour.
func newShop(t *testing.T, changes ...func(*Handler)) *shop {
	t.Helper()
	s := &shop{T: t, path: t.TempDir(), logger: zap.NewNop(), turns: make(testcaddy.Turns), answers: make(map[string]int)}
	s.load(changes...)
	t.Cleanup(func() { _ = s.current.Load().Cleanup() })
	return s
}

// inShop runs a test on a clock of its own. An hour after its end, nothing of the shop may be left.
func inShop(t *testing.T, test func(s *shop), changes ...func(*Handler)) {
	t.Helper()
	sample() // which begins a goroutine that never ends
	synctest.Test(t, func(t *testing.T) {
		var s *shop
		t.Cleanup(func() {
			time.Sleep(time.Hour)
			h := s.current.Load()
			s.equal("counted as inside", h.report.Inside.Load(), int64(0))
			s.equal("counted as waiting", h.report.Waiting.Load(), int64(0))
			s.equal("something refers to the engine", slices.Contains(engines.All(), h.engine.Shared), false)
		})
		s = newShop(t, changes...)
		test(s)
	})
}

// eachInShop runs a test in a shop for each row of a table.
func eachInShop[Row any](t *testing.T, rows map[string]Row, test func(s *shop, row Row)) {
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { inShop(t, func(s *shop) { test(s, row) }) })
	}
}

// load loads a configuration, and ends the one before.
func (s *shop) load(changes ...func(*Handler)) {
	s.Helper()
	h := &Handler{
		Path: s.path, Prefix: "shop_", EngineRaw: []byte(`{"engine": "memory"}`), Timeout: new(caddy.Duration),
		WaitingPage: &WaitingPage{JSON: true, After: new(caddy.Duration)},
		Visit:       &Visit{Idle: caddy.Duration(time.Minute), Longest: caddy.Duration(time.Hour)},
	}
	for _, change := range changes {
		change(h)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	s.Cleanup(cancel)
	must(s, h.Provision(ctx))
	h.engine.Replaces = ctx // it is the active one, until its Cleanup
	h.report.Logger = s.logger
	if before := s.current.Swap(h); before != nil {
		_ = before.Cleanup()
	}
}

// Changes of what is loaded.
func noVisit(h *Handler)          { h.Visit = nil }
func otherQueue(h *Handler)       { h.Prefix = "another_" }
func places(n int) func(*Handler) { return func(h *Handler) { h.Concurrency = n } }

func opensAt(moment time.Time) func(*Handler) {
	return func(h *Handler) {
		h.WaitingPage.Opens, h.WaitingPage.OpensBy = moment.Format(time.RFC3339Nano), "{http.request.header.User}"
	}
}

// tickets are those of the queue, in order.
func (s *shop) tickets() (tickets []serializer.TicketState) {
	for _, q := range s.current.Load().engine.Known(func(name string) bool { return name == "shop_" }) {
		tickets = q.Tickets
	}
	return tickets
}

// equal checks a value.
func (s *shop) equal(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %v; expected %v", what, got, want)
	}
}

// want checks how many are inside the queue and wait for it, on the test's own clock.
func (s *shop) want(inside, waiting int) {
	s.Helper()
	synctest.Wait()
	i, w := s.current.Load().engine.Count("shop_")
	s.equal("inside, waiting", [2]int{i, w}, [2]int{inside, waiting})
}

// later checks the same after a time.
func (s *shop) later(passed time.Duration, inside, waiting int) {
	s.Helper()
	time.Sleep(passed)
	s.want(inside, waiting)
}

// counted is how many requests had an outcome, also before the test.
func (s *shop) counted(name string) int64 {
	return s.current.Load().report.Outcomes[name].Count.Load()
}

// evict takes the first tickets out.
func (s *shop) evict(most int) {
	tickets := s.tickets()
	for _, t := range tickets[:min(len(tickets), most)] {
		token, _ := strconv.ParseUint(t.Token, 10, 64)
		_ = s.current.Load().engine.Evict(s.Context(), "shop_", token)
	}
}

// pause lets nobody enter.
func (s *shop) pause() {
	must(s, s.current.Load().engine.Pause(s.Context(), "shop_", serializer.Forever))
}

// upstream is what the queue protects. It notes which turn a request has.
func (s *shop) upstream(w http.ResponseWriter, r *http.Request) error {
	token, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.serialize.token")
	s.saw(token)
	work, _ := time.ParseDuration(r.FormValue("work"))
	select {
	case <-time.After(work):
	case <-r.Context().Done():
	}
	s.saw(token)
	h := w.Header()
	h.Set(leaveField, r.FormValue(leaveField))
	h.Set(stayField, r.FormValue(stayField))
	h.Set("Token", token)
	h.Set("Cache-Control", "public, max-age=60")
	if r.FormValue("fails") != "" {
		return caddyhttp.Error(http.StatusNotFound, errors.New("there is no such page"))
	}
	_, err := io.WriteString(w, "the shop")
	return err
}

func (s *shop) saw(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Saw(token, time.Now())
}

// browser keeps cookies.
type browser struct {
	*shop
	jar *cookiejar.Jar
	ctx context.Context // of its requests
	ip  string          // if it does not share one
}

func (s *shop) newBrowser(cookies ...*http.Cookie) *browser {
	jar, _ := cookiejar.New(nil)
	jar.SetCookies(address, cookies)
	return &browser{shop: s, jar: jar, ctx: s.Context()}
}

var address = &url.URL{Scheme: "http", Host: "example.com"}

// answer is one of the shop's, in a word: the status or "cut", and for 503 the reason of a refusal or "page".
type answer struct {
	*httptest.ResponseRecorder
	shop       *shop
	word, text string
}

// sends is one request with the browser's cookies, and keeps those of the answer. header is names and values in turn.
func (b *browser) sends(method, path string, body io.Reader, header ...string) (a answer) {
	r, w := httptest.NewRequestWithContext(b.ctx, method, "http://example.com"+path, body), httptest.NewRecorder()
	testcaddy.SetHeader(r, header)
	if b.ip != "" {
		r.RemoteAddr = "[" + b.ip + "]:1"
	}
	for _, cookie := range b.jar.Cookies(address) {
		r.AddCookie(cookie)
	}
	a = answer{w, b.shop, "cut", ""}
	defer func() {
		if thrown := recover(); thrown != nil && thrown != http.ErrAbortHandler {
			panic(thrown)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answers[a.word]++
	}()
	replacer, h := caddy.NewReplacer(), b.current.Load()
	err := h.ServeHTTP(w, caddyhttp.PrepareRequest(r, replacer, w, new(caddyhttp.Server)), caddyhttp.HandlerFunc(b.upstream))
	a.text = w.Body.String()
	if failed, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		w.Code, a.text = failed.StatusCode, err.Error()
	}
	reason, _ := replacer.GetString("http.serialize.reason")
	switch a.word = strconv.Itoa(w.Code); {
	case w.Code == http.StatusServiceUnavailable && reason != "":
		a.word = reason
	case w.Code == http.StatusServiceUnavailable && w.Header().Get("Refresh") != "":
		a.word = "page"
	}
	cookies := w.Result().Cookies()
	b.jar.SetCookies(address, cookies)
	cached := w.Header().Get("Cache-Control") == "public, max-age=60"
	if cached && len(cookies) > 0 && h.Visit != nil || w.Header().Get(leaveField)+w.Header().Get(stayField) != "" {
		b.Errorf("the browser sees %v", w.Header())
	}
	return a
}

// want checks the word of an answer, and fields of its header, which are names and values in turn.
func (a answer) want(word string, header ...string) answer {
	a.shop.Helper()
	if a.word != word {
		a.shop.Errorf("answer %s %s; expected %s", a.word, a.text, word)
	}
	for i := 0; i < len(header); i += 2 {
		a.shop.equal(header[i], a.Header().Get(header[i]), header[i+1])
	}
	return a
}

func (a answer) token() string { return a.Header().Get("Token") }

// place is what the page shows, or what its script has learned.
func (a answer) place() (place waitingpage.Place) {
	text := a.text
	if _, data, page := strings.Cut(text, `<script type="application/json">`); page {
		text = data
	}
	_ = json.NewDecoder(strings.NewReader(text)).Decode(&place)
	return place
}

func (b *browser) opens(path string) answer { return b.sends("GET", path, nil, "Accept", "text/html") }
func (b *browser) part(path string) answer  { return b.sends("GET", path, nil, "Accept", "image/*") }
func (b *browser) posts(path string) answer { return b.sends("POST", path, nil) }
func (b *browser) program() answer          { return b.sends("GET", "/", nil, "Accept", "application/json") }
func (b *browser) leaves()                  { b.posts("/?" + leaveField + "=1").want("200") }

// begin sends requests in the background, and returns what checks their answers.
func begin(requests int, send func() answer) (want func(word string)) {
	answers := make(chan answer)
	for range requests {
		go func() { answers <- send() }()
	}
	synctest.Wait()
	return func(word string) {
		for range requests {
			(<-answers).want(word)
		}
	}
}

// uploads sends a request whose body comes in the background, and returns what ends that, and checks the answer.
func (b *browser) uploads() (end func(word string)) {
	body, upload := io.Pipe()
	want := begin(1, func() answer { return b.sends("POST", "/", body) })
	return func(word string) { _ = upload.Close(); want(word) }
}

// asks is what the script of the page does.
func (b *browser) asks() answer {
	return b.sends("GET", "/", nil, "Accept", "text/html", "Orderly-Place", "ask")
}

// enters opens a page, and waits with the waiting page until the shop answers.
func (b *browser) enters(path string) (a answer) {
	for a = b.opens(path); a.word == "page" && b.ctx.Err() == nil; a = b.opens(path) {
		for b.ctx.Err() == nil && b.asks().place().Number > 0 { // which takes two seconds
		}
	}
	return a
}

// twice opens a page with the cookie of the first answer: a visit begins, or a place is proven.
func (b *browser) twice(word string) *browser {
	b.Helper()
	b.opens("/").want(word)
	b.opens("/").want(word)
	return b
}

const visitIdle = 200 * time.Millisecond

// shops is what one person does in a shop.
func (b *browser) shops(random *rand.Rand) {
	for page := range 1 + random.IntN(4) {
		if a := b.enters(fmt.Sprintf("/page%d?work=%dms", page, random.IntN(10))); a.word != "200" {
			return
		}
		var parts sync.WaitGroup
		for i := range 10 {
			parts.Go(func() { b.part(fmt.Sprintf("/part%d?work=%dms", i, i)) })
		}
		parts.Wait()
		time.Sleep(time.Duration(random.Int64N(int64(visitIdle / 2)))) // thinks
	}
	switch random.IntN(8) {
	case 0:
		b.posts("/logout?" + leaveField + "=1")
	case 1: // a second tab
		var tab sync.WaitGroup
		tab.Go(func() { b.enters("/tab?work=5ms") })
		b.enters("/tab?work=5ms")
		tab.Wait()
	case 2: // comes back too late
		time.Sleep(2 * visitIdle)
		b.posts("/late")
	case 3: // shares its cookies with a program
		b.newBrowser(b.jar.Cookies(address)...).part("/stolen?work=20ms")
	case 4: // forgets them
		b.jar = b.newBrowser().jar
	case 5:
		b.posts("/pay?" + stayField + "=" + fmt.Sprint(visitIdle.Seconds()))
	case 6: // hangs up
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Millisecond)
		(&browser{b.shop, b.jar, ctx, ""}).opens("/?work=10ms")
		cancel()
	}
}

// Never more than the places are inside, whatever browsers, operators and reloads do: visits and
// single turns are counted, not requests.
func TestVisits(t *testing.T) {
	short := func(h *Handler) {
		h.WaitingPage.Hold = new(caddy.Duration(3 * time.Second))
		h.Visit = &Visit{Idle: caddy.Duration(visitIdle), Longest: caddy.Duration(20 * visitIdle)}
	}
	s := newShop(t, short, places(*visitPlaces))
	ctx, cancel := context.WithTimeout(t.Context(), *visitsFor)
	defer cancel()
	var people sync.WaitGroup
	for i := range *visitBrowsers {
		people.Go(func() {
			random, b := rand.New(rand.NewPCG(1, uint64(i))), s.newBrowser()
			for b.ctx = ctx; ctx.Err() == nil; {
				b.shops(random)
			}
		})
	}
	people.Go(func() { // a program without cookies
		for ctx.Err() == nil {
			s.newBrowser().part("/program")
			s.newBrowser().opens("/program")
		}
	})
	for step := 0; ctx.Err() == nil; step++ { // what operators do
		time.Sleep(100 * time.Millisecond)
		switch step % 4 {
		case 0:
			s.load(short, places(*visitPlaces*(1+step/4%3)/3))
		case 1:
			_ = s.current.Load().engine.Pause(ctx, "shop_", time.Now().Add(100*time.Millisecond))
		case 2:
			s.evict(1)
		}
		inside, _ := s.current.Load().engine.Count("shop_")
		s.equal("the list has more inside than there are places", inside > *visitPlaces, false)
	}
	people.Wait()
	wait.Until(t, "nobody is inside", func() bool { // a turn waits 30 s for its browser
		s.evict(*visitBrowsers)
		return len(s.tickets()) == 0
	})
	most := s.turns.MostAtOnce()
	t.Logf("%d turns, %d of them at once; answers: %v", len(s.turns), most, s.answers)
	s.equal("more were inside than there are places", most > *visitPlaces, false)
	s.equal("counted as inside", s.current.Load().report.Inside.Load(), int64(0))
	s.equal("there were visits", s.answers["200"] >= 2*len(s.turns), true)
	for word := range s.answers {
		s.equal(word, slices.Contains([]string{"200", "page", "visit_ended", "evicted", "504", "cut", "499", "gone"}, word), true)
	}
}
