//go:build unix

package integration_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// visitor is a browser without JavaScript: it sends what browsers send, and keeps cookies.
type visitor struct {
	c       *caddy
	client  *http.Client
	cookies map[string]string
}

func newVisitor(c *caddy) *visitor {
	return &visitor{c, newClient(c.t, "1.1"), make(map[string]string)}
}

var navigation = []string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}

// opens goes to a page and keeps its cookies.
func (b *visitor) opens(name string, header ...string) testcaddy.Answer {
	var cookies []string
	for name, value := range b.cookies {
		cookies = append(cookies, name+"="+value)
	}
	header = slices.Concat(navigation, []string{"Cookie", strings.Join(cookies, "; ")}, header)
	a := do(b.client, "GET", b.c.url+"/"+name, "", header...)
	for _, c := range a.Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return a
}

// going is opens in the background.
func (b *visitor) going(name string) <-chan testcaddy.Answer {
	return inBackground(func() testcaddy.Answer { return b.opens(name) })
}

// asks sends what the page's script sends.
func (b *visitor) asks(name string) testcaddy.Answer {
	b.c.t.Helper()
	return b.opens(name, "Orderly-Place", "ask").Want(b.c.t, http.StatusOK)
}

// awaitTurn waits until the page is to reload.
func (b *visitor) awaitTurn(name string) {
	b.c.t.Helper()
	wait.Until(b.c.t, "the page is to reload", func() bool { return b.asks(name).Text == `{"turn":true}` })
}

// waits goes to a page and expects the waiting page.
func (b *visitor) waits(name string, header ...string) testcaddy.Answer {
	b.c.t.Helper()
	return wantPage(b.c.t, b.opens(name, header...))
}

// finds goes to the waiting page, which must have a text, and say whether an earlier
// place is gone.
func (b *visitor) finds(text string, isLost bool) {
	b.c.t.Helper()
	if a := b.waits("mine"); !strings.Contains(a.Text, text) || strings.Contains(a.Text, lost) != isLost {
		b.c.t.Errorf("the page shows %s", a.Text)
	}
}

// lost is what the page says to somebody whose place is gone.
const lost = "Your earlier place is gone."

func wantPage(t testing.TB, a testcaddy.Answer) testcaddy.Answer {
	t.Helper()
	if a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.Text, `data-waiting="place"`) {
		t.Fatalf("answer %d %v %s; expected the waiting page", a.StatusCode, a.Header, a.Text)
	}
	_, a.Text, _ = strings.Cut(a.Text, "<main>") // not the style
	a.Text, _, _ = strings.Cut(a.Text, "</main>")
	return a
}

// isServed goes to a page whose turn has come or is about to come. The answer of the
// request before may arrive before its turn passes on. Then the page comes once more.
func (b *visitor) isServed(name string) {
	b.c.t.Helper()
	wait.Until(b.c.t, name+" is served", func() bool {
		a := b.opens(name)
		if a.StatusCode == http.StatusOK && a.Text == "served "+name {
			return true
		}
		if page := wantPage(b.c.t, a); strings.Contains(page.Text, lost) {
			b.c.t.Fatalf("the place is lost: %s", page.Text)
		}
		return false
	})
}

// waitingSite is that of a queue with a waiting page. Browsers ask for an icon by
// themselves; that request needs no turn.
func waitingSite(page, options string) string {
	return "respond /favicon.ico 404\nserialize /favicon.ico off\n" +
		behindQueue("prefix a_\ntimeout 10m\nwaiting_page {\n"+page+"\n}\n"+options)
}

// busySite starts a process with a waiting page, and brings a request inside.
func busySite(t *testing.T, page, options string) (c *caddy, leave func()) {
	t.Helper()
	c = start(t, setup{site: waitingSite(page, options)})
	return c, c.occupy("first")
}

// occupy brings a request inside, which stays there until leave.
func (c *caddy) occupy(name string) (leave func()) {
	c.t.Helper()
	answer := testcaddy.Send(c.t, "POST", c.url+"/?gate&name="+name, "")
	c.awaitHit(name)
	return func() {
		c.Open(name)
		<-answer
	}
}

// Bug: the cookie of a tab ended when its script asked for a place that another tab had used. Without
// a cookie, the tab came again as if it refused cookies, and waited without the page.
func TestWaitingTabAsksForAUsedPlace(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(c)
	b.waits("mine")
	b.waits("mine")
	other := maps.Clone(b.cookies)
	leave()
	b.isServed("mine")
	c.occupy("second")
	b.cookies = other
	if a := b.asks("mine"); a.Text != `{"gone":true}` {
		t.Errorf("the script gets %s", a.Text)
	}
	b.waits("mine")
}

// A navigation that has waited gets the page. Its ticket keeps its place in the queue
// until the browser returns for its turn; others wait as before.
func TestWaitingPageKeepsThePlace(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 100ms", "")
	b := newVisitor(c)
	a := b.waits("two")
	for name, want := range map[string]string{
		"Cache-Control": `^no-store$`, "Retry-After": `^\d+$`, "Refresh": `^[12]$`, "Content-Type": `^text/html`,
		"Content-Security-Policy": `^default-src 'none'; .*frame-ancestors 'none'.*script-src 'sha256-`,
		"Set-Cookie":              `^orderly_waiting_[0-9a-f]{12}=[A-Z2-7]{26}\.[\w-]{43}; Path=/; Max-Age=300; HttpOnly; SameSite=Lax$`,
	} {
		if got := a.Header.Get(name); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q; expected %s", name, got, want)
		}
	}
	if !strings.Contains(a.Text, "You are next.") || strings.Contains(a.Text, lost) {
		t.Errorf("the page shows %s", a.Text)
	}
	three := testcaddy.Send(t, "POST", c.url+"/?name=three", "")
	c.awaitTickets(3)
	b.waits("two")
	other := newVisitor(c)
	other.finds("You are number 3 in the queue.", false)
	for range 3 { // however often it asks
		b.waits("two")
	}
	q := c.awaitQueue("a_", 1, 3)
	if request := q.Tickets[3].Request; request == nil || request.Path != "/mine" || request.Method != http.MethodGet {
		t.Errorf("the list has the request %+v", request)
	}
	leave()
	b.isServed("two")
	c.wantServed(three)
	other.isServed("another/page") // of the same queue
	c.wantOrder("first", "two", "three", "another/page")
	c.awaitTickets(0)
}

// The page's script learns the place, and when to reload, by small requests.
func TestWaitingPageAsks(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0", "")
	b := newVisitor(c)
	if a := b.asks("mine"); a.Text != `{"gone":true}` {
		t.Errorf("without a cookie, the answer is %s", a.Text)
	}
	c.awaitTickets(1) // it has taken no ticket
	b.waits("mine")
	a := b.asks("mine")
	if a.Header.Get("Content-Type") != "application/vnd.orderly.place+json" || a.Header.Get("Cache-Control") != "no-store" ||
		a.Text != `{"number":1,"paused":false,"wait":0}` {
		t.Errorf("the answer is %v %s", a.Header, a.Text)
	}
	turn := inBackground(func() testcaddy.Answer { return b.opens("mine", "Orderly-Place", "ask") })
	leave()
	if a := <-turn; a.Text != `{"turn":true}` {
		t.Errorf("the answer is %s", a.Text)
	}
	b.isServed("mine")
}

// Bug: a question for the place waited longer than a short write_timeout, and got no answer.
func TestWaitingPageAsksInSpiteOfTimeouts(t *testing.T) {
	t.Parallel()
	for _, idle := range []string{"", "write_idle 1m"} {
		c := start(t, setup{site: waitingSite("after 0", ""), servers: "timeouts {\n write 1s\n" + idle + "\n}"})
		leave := c.occupy("first")
		b := newVisitor(c)
		b.waits("mine")
		if a := b.asks("mine"); !strings.HasPrefix(a.Text, `{"number":1,`) {
			t.Errorf("the answer is %v %s", a, a.Text)
		}
		leave()
	}
}

// A browser whose turn comes within after gets no page.
func TestWaitingWithinAfter(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 1m", "")
	two := newVisitor(c).going("two")
	c.awaitTickets(2)
	leave()
	c.wantServed(two)
}

// A browser that need not wait gets no page, even if it would get it at once.
func TestWaitingForNothing(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		c := start(t, setup{site: waitingSite("after 0", "engine "+engine)})
		for i := range 30 {
			newVisitor(c).opens(fmt.Sprint(i)).Want(t, http.StatusOK)
			c.awaitQueue("a_", 0, 0)
		}
	})
}

// Forged cookies have no effect: they give neither a new place nor somebody else's.
func TestWaitingCookiesMadeUp(t *testing.T) {
	t.Parallel()
	c, _ := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(c)
	b.waits("mine")
	b.waits("mine")
	for name, value := range b.cookies {
		for _, forged := range []string{value[:69] + "!", value[:26], value[:27] + strings.Repeat("A", 43), value + "AA", "x", ""} {
			impostor := newVisitor(c)
			impostor.cookies[name] = forged
			if a := impostor.waits("impostor"); strings.Contains(a.Text, "You are next.") {
				t.Errorf("with the forged cookie %q, the page shows %s", forged, a.Text)
			}
		}
	}
}

// Bug: over HTTP/3, where a request does not say that it has no body, nobody got the page.
//
// Over TLS the cookie is one that no other site can set, in all versions of HTTP.
func TestWaitingOverTLS(t *testing.T) {
	t.Parallel()
	allVersions(t, func(t *testing.T, client *http.Client) {
		c := start(t, setup{tls: true, site: waitingSite("after 0", "")})
		holder := c.holder(t)
		b := newVisitor(c)
		b.client = client
		cookie := b.waits("mine").Header.Get("Set-Cookie")
		if want := `^__Host-orderly_waiting_[0-9a-f]{12}=[A-Z2-7]{26}\.[\w-]{43}; Path=/; Max-Age=300; HttpOnly; Secure; SameSite=Lax$`; !regexp.MustCompile(want).MatchString(cookie) {
			t.Errorf("cookie %s; expected %s", cookie, want)
		}
		if a := b.asks("mine"); !strings.Contains(a.Text, `"number":1,`) {
			t.Errorf("answer %s", a.Text)
		}
		c.release(holder)
		b.awaitTurn("mine")
		// Browsers remove it only by a cookie that has the same marks.
		cookie = b.opens("mine").Want(t, http.StatusOK).Header.Get("Set-Cookie")
		if want := `^__Host-orderly_waiting_[0-9a-f]{12}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax$`; !regexp.MustCompile(want).MatchString(cookie) {
			t.Errorf("when it is served, cookie %s; expected %s", cookie, want)
		}
		c.wantOrder("holder", "mine")
	})
}

// That the browser uses TLS is believed only if a trusted proxy says so.
func TestWaitingBehindTLS(t *testing.T) {
	t.Parallel()
	for servers, secure := range map[string]bool{"trusted_proxies static 127.0.0.0/8": true, "": false} {
		c := start(t, setup{site: waitingSite("after 0", ""), servers: servers})
		c.holder(t)
		cookie := newVisitor(c).waits("mine", "X-Forwarded-Proto", "https", "X-Forwarded-For", "192.0.2.1").Header.Get("Set-Cookie")
		if got := strings.HasPrefix(cookie, "__Host-") && strings.Contains(cookie, "; Secure"); got != secure {
			t.Errorf("%q: cookie %s", servers, cookie)
		}
	}
}

// While the queue is paused, the page says so, and continues afterwards.
func TestWaitingWhilePaused(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: waitingSite("after 0", "")})
	c.pause("a_", "10m")
	b := newVisitor(c)
	b.finds("The queue is paused. You keep your place.", false)
	if a := b.asks("mine"); !strings.Contains(a.Text, `"paused":true`) {
		t.Errorf("answer %s", a.Text)
	}
	c.resume("a_")
	b.awaitTurn("mine")
	b.opens("mine").Want(t, http.StatusOK)
	c.wantOrder("mine")
}

// Queues whose names come from a placeholder have separate cookies: a browser has a place
// in each.
func TestWaitingInKeyedQueues(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: strings.Replace(waitingSite("after 0", ""), "prefix a_", "prefix shop_{query.shop}_", 1)})
	b, shops := newVisitor(c), []string{"one", "two"}
	var holders []<-chan testcaddy.Answer
	for _, shop := range shops {
		holders = append(holders, c.getting("/?gate&name="+shop+"&shop="+shop))
		c.awaitHit(shop)
		if page := b.waits("mine?shop=" + shop); !strings.Contains(page.Text, "You are next.") || strings.Contains(page.Text, lost) {
			t.Errorf("the page of %s shows %s", shop, page.Text)
		}
	}
	for i, shop := range shops {
		b.waits("mine?shop=" + shop)
		c.Open(shop)
		c.wantServed(holders[i])
		c.awaitQueue("shop_"+shop+"_", 1, 0) // its turn waits
		b.opens("mine?shop="+shop).Want(t, http.StatusOK)
	}
}
