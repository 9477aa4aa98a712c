package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// visitor is a browser without JavaScript: it sends what browsers send, and keeps cookies.
type visitor struct {
	site    *site
	cookies map[string]string
	header  []string
}

func newVisitor(s *site, header ...string) *visitor {
	return &visitor{s, make(map[string]string), header}
}

var navigation = []string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}

// going goes to a page, and gives the answer later.
func (b *visitor) going(t *testing.T, name string, header ...string) <-chan testcaddy.Answer {
	t.Helper()
	header = slices.Concat(navigation, b.header, header)
	for name, value := range b.cookies {
		header = append(header, "Cookie", name+"="+value)
	}
	return testcaddy.Send(t, http.MethodGet, b.site.url+name, "", header...)
}

// asks sends what the page's script sends.
func (b *visitor) asks(t *testing.T) testcaddy.Answer {
	t.Helper()
	return testcaddy.Await(t, b.going(t, "mine", "Orderly-Place", "ask")).Want(t, http.StatusOK)
}

// take waits for an answer and keeps its cookies.
func (b *visitor) take(t *testing.T, answers <-chan testcaddy.Answer) testcaddy.Answer {
	t.Helper()
	return b.keep(testcaddy.Await(t, answers))
}

// keep keeps the cookies of an answer.
func (b *visitor) keep(a testcaddy.Answer) testcaddy.Answer {
	for _, c := range a.Cookies() {
		b.cookies[c.Name] = c.Value
	}
	return a
}

func (b *visitor) visit(t *testing.T, name string) testcaddy.Answer {
	t.Helper()
	return b.take(t, b.going(t, name))
}

// waits goes to a page and expects the waiting page.
func (b *visitor) waits(t *testing.T, name string) testcaddy.Answer {
	t.Helper()
	return wantPage(t, b.visit(t, name))
}

// lost is what the page says to somebody whose place is gone.
const lost = "Your earlier place is gone."

func wantPage(t *testing.T, a testcaddy.Answer) testcaddy.Answer {
	t.Helper()
	if a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.Text, `data-waiting="place"`) {
		t.Fatalf("answer %d %v %s; expected the waiting page", a.StatusCode, a.Header, a.Text)
	}
	_, a.Text, _ = strings.Cut(a.Text, "<main>") // not the style
	a.Text, _, _ = strings.Cut(a.Text, "</main>")
	return a
}

// wantServed fails the test unless a request had its turn.
func wantServed(t *testing.T, a testcaddy.Answer, name string) {
	t.Helper()
	if a.StatusCode != http.StatusOK || a.Text != "served "+name {
		t.Errorf("answer %d %s; expected that of %s", a.StatusCode, a.Text, name)
	}
}

// busySite is a site with a waiting page, and a request inside.
func busySite(t *testing.T, page, options string) (s *site, leave func()) {
	t.Helper()
	s = waitingSite(t, page, options)
	return s, s.occupy(t)
}

// waitingCaddyfile is that of a queue with a waiting page. Browsers ask for an icon by
// themselves; that request needs no turn.
func (s *site) waitingCaddyfile(page, options string) string {
	text := s.caddyfile("waiting_page {\n" + page + "\n}\n" + options)
	return strings.Replace(text, "\tserialize {", "\trespond /favicon.ico 404\n\tserialize /favicon.ico off\n\tserialize {", 1)
}

// waitingSite is a site with a waiting page.
func waitingSite(t *testing.T, page, options string) *site {
	t.Helper()
	s := unstartedSite(t)
	s.start(t, s.waitingCaddyfile(page, options))
	return s
}

// joinWaiting starts a server of the same queue, with a waiting page.
func (s *site) joinWaiting(t *testing.T, page string) *site {
	t.Helper()
	other := s.unstarted(t)
	other.start(t, other.waitingCaddyfile(page, ""))
	return other
}

// isServed goes to a page whose turn has come or is about to come. The answer of the
// request before may arrive before its turn passes on. Then the page comes once more.
func (b *visitor) isServed(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(wait.Patience); time.Now().Before(end); {
		answer := b.going(t, name)
		select {
		case v := <-b.site.Entries():
			v.Leave()
			wantServed(t, b.take(t, answer), name)
			return
		case a := <-answer:
			if page := wantPage(t, b.keep(a)); strings.Contains(page.Text, lost) {
				t.Fatalf("the place is lost: %s", page.Text)
			}
		}
	}
	t.Fatalf("waited in vain for %s to enter", name)
}

// occupy sends a request that is inside until leave.
func (s *site) occupy(t *testing.T) (leave func()) {
	t.Helper()
	first := s.send(t, "POST", "first")
	inside := s.NextNamed("first")
	return func() {
		inside.Leave()
		testcaddy.Await(t, first)
	}
}

// A navigation that has waited gets the page. Its ticket keeps its place in the queue
// until the browser returns for its turn; others wait as before.
func TestWaitingPageKeepsThePlace(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 100ms", "")
	b := newVisitor(s)
	a := b.waits(t, "two")
	for name, want := range map[string]string{
		"Cache-Control": `^no-store$`, "Retry-After": `^\d+$`, "Refresh": `^[12]$`, "Content-Type": `^text/html`,
		"Content-Security-Policy": `^default-src 'none'; .*frame-ancestors 'none'.*script-src 'sha256-`,
		"Set-Cookie":              `^orderly_waiting_[0-9a-f]{12}=[A-Z2-7]{26}\.[\w-]{43}; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax$`,
	} {
		if got := a.Header.Get(name); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q; expected %s", name, got, want)
		}
	}
	if !strings.Contains(a.Text, "You are next.") || strings.Contains(a.Text, lost) {
		t.Errorf("the page shows %s", a.Text)
	}
	three := s.send(t, "POST", "three")
	s.awaitTickets(t, 3)
	b.waits(t, "two")
	other := newVisitor(s)
	if a := other.waits(t, "four"); !strings.Contains(a.Text, "You are number 3 in line.") {
		t.Errorf("the page shows %s", a.Text)
	}
	for range 3 { // however often it asks
		b.waits(t, "two")
	}
	q := s.awaitTickets(t, 4)
	if request := q.Tickets[3].Request; request == nil || request.Path != "/four" || request.Method != http.MethodGet {
		t.Errorf("the list has the request %+v", request)
	}
	other.waits(t, "four")
	leave()
	b.isServed(t, "two")
	other.waits(t, "four")
	s.NextNamed("three").Leave()
	wantServed(t, testcaddy.Await(t, three), "three")
	other.isServed(t, "another/page") // of the same queue
	s.awaitTickets(t, 0)
	s.Nobody()
}

// The page's script learns the place, and when to reload, by small requests.
func TestWaitingPageAsks(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "")
	b := newVisitor(s)
	if a := b.asks(t); a.Text != `{"gone":true}` {
		t.Errorf("without a cookie, the answer is %s", a.Text)
	}
	s.awaitTickets(t, 1) // it has taken no ticket
	b.waits(t, "mine")
	a := b.asks(t)
	if a.Header.Get("Content-Type") != "application/vnd.orderly.place+json" || a.Header.Get("Cache-Control") != "no-store" ||
		a.Text != `{"number":1,"paused":false,"wait":0}` {
		t.Errorf("the answer is %v %s", a.Header, a.Text)
	}
	turn := b.going(t, "mine", "Orderly-Place", "ask")
	leave()
	if a := testcaddy.Await(t, turn); a.Text != `{"turn":true}` {
		t.Errorf("the answer is %s", a.Text)
	}
	b.isServed(t, "mine")
}

// A request that is not a navigation waits with an open connection, whatever it accepts.
func TestWaitingPageIsForNavigations(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "concurrency 1")
	var answers []<-chan testcaddy.Answer
	for i, c := range []struct {
		method string
		header []string
	}{
		{"POST", navigation},
		{"HEAD", navigation},
		{"GET", nil},
		{"GET", []string{"Accept", "*/*"}},
		{"GET", []string{"Accept", "application/json"}},
		{"GET", []string{"Accept", "text/html;q=0, */*"}},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "cors"}},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "no-cors"}},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Purpose", "prefetch"}},
	} {
		answers = append(answers, testcaddy.Send(t, c.method, s.url+fmt.Sprint(i), "", c.header...))
		s.awaitTickets(t, i+2)
	}
	wantPage(t, testcaddy.Get(t, s.url+"old", "Accept", "text/html")) // an old browser
	for i, answer := range answers {
		if len(answer) > 0 {
			t.Errorf("request %d was answered: %v", i, <-answer)
		}
	}
	leave()
	for range answers {
		s.Next().Leave()
	}
	for _, answer := range answers {
		testcaddy.Await(t, answer).Want(t, http.StatusOK)
	}
}

// A browser whose turn comes within after gets no page, and one that hangs up leaves the
// queue.
func TestWaitingWithinAfter(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 1m", "")
	b := newVisitor(s)
	two := b.going(t, "two")
	s.awaitTickets(t, 2)
	gone := goingAway(t, s.url+"three", navigation...)
	s.awaitTickets(t, 3)
	gone()
	s.awaitTickets(t, 2)
	leave()
	s.NextNamed("two").Leave()
	wantServed(t, b.take(t, two), "two")
	s.wantMetric(t, `caddy_serialize_requests_total{outcome="gone",queue="a_"}`, 1)
	s.awaitTickets(t, 0)
}

// A browser that need not wait gets no page, even if it would get it at once.
func TestWaitingForNothing(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		s := waitingSite(t, "after 0", "engine "+engine)
		for i := range 30 {
			name := fmt.Sprint(i)
			answer := newVisitor(s).going(t, name)
			s.NextNamed(name).Leave()
			wantServed(t, testcaddy.Await(t, answer), name)
		}
	})
}

// If a browser stops returning, its place is given up after hold. When it returns, it is
// at the end, and the page says so.
func TestWaitingPlaceIsGivenUp(t *testing.T) {
	t.Parallel()
	const hold = 4 * time.Second
	s, leave := busySite(t, "after 0\nhold "+hold.String(), "")
	b := newVisitor(s)
	b.waits(t, "two")
	contact := time.Now()
	b.waits(t, "two")
	s.awaitTickets(t, 2)
	s.awaitTickets(t, 1)
	if gone := time.Since(contact); gone < hold {
		t.Errorf("the place was kept for %v only", gone)
	}
	three := s.send(t, "POST", "three")
	s.awaitTickets(t, 2)
	a := b.waits(t, "two")
	if !strings.Contains(a.Text, lost) {
		t.Errorf("the page does not say that the place is gone: %s", a.Text)
	}
	if a = b.waits(t, "two"); !strings.Contains(a.Text, "You are number 2 in line.") {
		t.Errorf("the page shows %s", a.Text)
	}
	leave()
	s.NextNamed("three").Leave()
	testcaddy.Await(t, three)
	s.wantMetric(t, `caddy_serialize_requests_total{outcome="gone",queue="a_"}`, 1)
}

// A turn waits for its browser for a moment. Then the next one enters.
func TestWaitingTurnIsMissed(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1m", "")
	b := newVisitor(s)
	b.waits(t, "two")
	b.waits(t, "two")
	three := s.send(t, "POST", "three")
	s.awaitTickets(t, 3)
	leave()
	s.Nobody() // the turn waits for the browser
	s.wantMetric(t, `caddy_serialize_waiting{queue="a_"}`, 2)
	s.NextNamed("three").Leave()
	testcaddy.Await(t, three)
	s.wantMetric(t, `caddy_serialize_requests_total{outcome="gone",queue="a_"}`, 1)
	s.wantMetric(t, `caddy_serialize_waiting{queue="a_"}`, 0)
	s.wantMetric(t, `caddy_serialize_inside{queue="a_"}`, 0)
	leave = s.occupy(t)
	if a := b.waits(t, "two"); !strings.Contains(a.Text, lost) {
		t.Errorf("the page does not say that the place is gone: %s", a.Text)
	}
	leave()
}

// Bug: ten places without a connection kept the queue idle for 21 seconds.
func TestWaitingForAbsentVisitors(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 10m", "")
	for i := range 10 {
		b := newVisitor(s)
		b.waits(t, "mine")
		if i%2 == 0 {
			b.waits(t, "mine")
		}
	}
	present := s.send(t, "POST", "present")
	s.awaitTickets(t, 12)
	leave()
	left := time.Now()
	s.NextNamed("present").Leave()
	if idle := time.Since(left); idle > 10*time.Second {
		t.Errorf("the queue was idle for %v; expected 10 s at most", idle)
	}
	wantServed(t, testcaddy.Await(t, present), "present")
}

// wantMetric waits until a metric of the server has a value.
func (s *site) wantMetric(t *testing.T, series string, want float64) {
	t.Helper()
	wait.Eventually(t, fmt.Sprintf("%s is %v", series, want), func() error {
		text := s.Ask("/metrics")
		if !strings.Contains(text, fmt.Sprintf("%s %v\n", series, want)) {
			return fmt.Errorf("metrics:\n%s", text)
		}
		return nil
	})
}

// Forged cookies have no effect: they give neither a new place nor somebody else's.
func TestWaitingCookiesMadeUp(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(s)
	b.waits(t, "two")
	b.waits(t, "two")
	for name, value := range b.cookies {
		for _, forged := range []string{value[:69] + "!", value[:26], value[:27] + strings.Repeat("A", 43), value + "AA", "x", ""} {
			impostor := newVisitor(s)
			impostor.cookies[name] = forged
			if a := impostor.waits(t, "impostor"); strings.Contains(a.Text, "You are next.") {
				t.Errorf("with the forged cookie %q, the page shows %s", forged, a.Text)
			}
		}
	}
	leave()
}

// goingAway sends a request whose client hangs up with gone.
func goingAway(t *testing.T, url string, header ...string) (gone func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	testcaddy.SetHeader(r, header)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
