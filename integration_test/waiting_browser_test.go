package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// goTo goes to an address without waiting for the answer.
func (b *browser) goTo(url string) {
	b.t.Helper()
	b.call("Page.enable", nil, nil)
	b.call("Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("setTimeout(() => { location.href = %q })", url)}, nil)
}

// onWaitingPage is true in a browser that shows the waiting page.
const onWaitingPage = "document.querySelector('[data-waiting=place]') !== null"

func placeIs(text string) string {
	return fmt.Sprintf("document.querySelector('[data-waiting=place]')?.textContent === %q", text)
}

// newTab opens an empty page in the same browser, which shares its cookies.
func (b *browser) newTab() *browser {
	b.t.Helper()
	whole := &browser{t: b.t, connection: b.connection}
	return &browser{t: b.t, connection: b.connection, session: whole.attach(map[string]any{"url": "about:blank"})}
}

// In a browser with JavaScript, the page counts down without being reloaded, and
// continues at once when the turn has come.
func TestWaitingInBrowser(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 200ms", "")
	two := s.send(t, "POST", "two")
	s.awaitTickets(t, 2)
	b := openPage(t)
	b.goTo(s.url + "mine?a=b#c")
	b.until(onWaitingPage)
	b.until(placeIs("You are number 2 in line."))
	b.until("document.title === '(2) Waiting in line'")
	b.run("window.same = true", nil)
	leave()
	in := s.NextNamed("two")
	b.until(placeIs("You are next."))
	b.until("document.title === '(1) Waiting in line' && document.querySelector('[role=status][aria-live=polite]') !== null")
	// Refresh, which is for browsers without JavaScript, would load the page again.
	time.Sleep(5500 * time.Millisecond)
	b.until("window.same === true")
	in.Leave()
	testcaddy.Await(t, two)
	s.NextNamed("mine").Leave()
	b.until("document.body?.innerText === 'served mine' && location.search === '?a=b' && location.hash === '#c'")
	s.awaitTickets(t, 0)
}

// The browser is inside shortly after its turn has come.
func TestWaitingBrowserGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	s := waitingSite(t, "after 0", "")
	b := openPage(t)
	var took []time.Duration
	for i := range 7 {
		leave := s.occupy(t)
		name := fmt.Sprint("mine", i)
		b.goTo(s.url + name)
		b.until(placeIs("You are next."))
		s.awaitTickets(t, 2)
		leave()
		left := time.Now()
		in := s.NextNamed(name)
		took = append(took, time.Since(left))
		in.Leave()
		b.until(fmt.Sprintf("document.body?.innerText === 'served %s'", name))
	}
	// Whatever else the machine does, one of them had it in time.
	if slices.Sort(took); took[0] > 300*time.Millisecond {
		t.Errorf("the browser was inside after %v; expected 300 ms at most", took)
	}
}

// A reload and a second tab share one place. The tab that comes first takes the turn, and
// the other one lines up again.
func TestWaitingInTwoTabs(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "")
	one := openPage(t)
	one.goTo(s.url + "1")
	one.until(placeIs("You are next."))
	two := one.newTab()
	two.goTo(s.url + "2")
	two.until(placeIs("You are next."))
	one.run("setTimeout(() => location.reload())", nil)
	one.until("performance.getEntriesByType('navigation')[0].type === 'reload' && " + placeIs("You are next."))
	s.awaitTickets(t, 2)
	leave()
	first := s.Next()
	s.awaitTickets(t, 2)
	other := map[string]*browser{"1": two, "2": one}[first.Name]
	other.until(placeIs("You are next."))
	s.Nobody()
	first.Leave()
	s.Next().Leave()
	other.until("document.body?.innerText.startsWith('served')")
	s.awaitTickets(t, 0)
}

// A browser that goes back to the page finds its place again. A private window has one of
// its own.
func TestWaitingBackAndPrivate(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "")
	defer leave()
	whole := startBrowser(t)
	b, private := whole.newProfile(), whole.newProfile()
	b.goTo(s.url + "mine")
	b.until(placeIs("You are next."))
	b.visit("about:blank")
	private.goTo(s.url + "mine")
	private.until(placeIs("You are number 2 in line."))
	b.run("setTimeout(() => history.back())", nil)
	b.until(placeIs("You are next."))
	s.awaitTickets(t, 3)
}

// Browsers that refuse cookies wait with their connection, once the page has seen that they
// do, with JavaScript and without.
func TestWaitingWithoutCookies(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		t.Run(fmt.Sprint("script ", script), func(t *testing.T) {
			t.Parallel()
			s, leave := busySite(t, "after 0", "")
			b := openPageWith(t, `{"profile": {"default_content_setting_values": {"cookies": 2}}}`)
			b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !script}, nil)
			b.goToWithoutScript(s.url + "mine?a=b")
			b.until(placeIs("You are next."))
			seen := make(map[string]bool)
			wait.Eventually(t, "the first place is gone, and the page waits", func() error {
				tickets := s.queues(t)[0].Tickets
				for _, ticket := range tickets {
					seen[ticket.Token] = true
				}
				if len(seen) != 3 || len(tickets) != 2 {
					return fmt.Errorf("tickets %+v of %d", tickets, len(seen))
				}
				return nil
			})
			time.Sleep(5 * time.Second) // longer than a place without a cookie
			s.awaitTickets(t, 2)
			leave()
			s.NextNamed("mine").Leave()
			b.until("document.body?.innerText === 'served mine'")
		})
	}
}

// Bug: if a reload of the configuration removed the queue, the page said for ever that the
// connection was lost. Its script kept asking the upstream.
func TestWaitingQueueIsTakenAway(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 10m", "")
	defer leave()
	b := openPage(t)
	b.goTo(s.url + "mine")
	b.until(placeIs("You are next."))
	s.Reload(t, strings.Replace(s.waitingCaddyfile("", ""), "serialize {", "respond /never 200\n\tserialize /never {", 1))
	go func() { // the script's question, if it had the time, and the page
		for {
			select {
			case v := <-s.Entries():
				v.Leave()
			case <-t.Context().Done():
				return
			}
		}
	}()
	b.until("document.body?.innerText === 'served mine'")
}

// Bug: if only the page was removed, its script's request waited in the queue for its
// turn. The answer was thrown away, and the page queued again.
func TestWaitingPageIsTakenAway(t *testing.T) {
	t.Parallel()
	s := waitingSite(t, "after 0\nhold 3s", "")
	leave := s.occupy(t)
	b := openPage(t)
	b.goTo(s.url + "mine")
	b.until(placeIs("You are next."))
	seen := make(map[string]bool)
	look := func() []serializer.TicketState {
		tickets := s.queues(t)[0].Tickets
		for _, ticket := range tickets {
			seen[ticket.Token] = true
		}
		return tickets
	}
	look() // on a busy machine, the first place may be gone before the reload is over
	s.Reload(t, strings.Replace(s.waitingCaddyfile("after 0\nhold 3s", ""), "waiting_page {\nafter 0\nhold 3s\n}", "", 1))
	wait.Eventually(t, "the page has come again, and its first place and its script's are gone", func() error {
		if tickets := look(); len(seen) != 4 || len(tickets) != 2 {
			return fmt.Errorf("tickets %+v of %d", tickets, len(seen))
		}
		return nil
	})
	leave()
	s.NextNamed("mine").Leave()
	b.until("document.body?.innerText === 'served mine'")
	s.Nobody()
}

// A closed tab frees its place within hold, even if its turn has not come.
func TestWaitingTabIsClosed(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 2s", "")
	b := openPage(t)
	b.goTo(s.url + "mine")
	b.until(placeIs("You are next."))
	time.Sleep(3 * time.Second) // longer than hold: the page is open
	s.awaitTickets(t, 2)
	b.visit("about:blank")
	closed := time.Now()
	s.awaitTickets(t, 1)
	if after := time.Since(closed); after > wait.Patience/2 {
		t.Errorf("the place was free after %v", after)
	}
	leave()
	s.Nobody()
}

// Without JavaScript, the page reloads by itself until the turn has come.
func TestWaitingWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 6s", "")
	b := openPage(t)
	b.goTo(s.url + "mine")
	b.until(onWaitingPage)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.goToWithoutScript(s.url + "mine")
	b.until(placeIs("You are next."))
	time.Sleep(8 * time.Second) // longer than hold
	s.awaitTickets(t, 2)
	leave()
	s.NextNamed("mine").Leave()
	b.until("document.body?.innerText === 'served mine'")
}

// goToWithoutScript goes to an address, also in a browser that runs no scripts.
func (b *browser) goToWithoutScript(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// newProfile opens an empty page in a profile of its own, with cookies of its own.
func (b *browser) newProfile() *browser {
	b.t.Helper()
	var profile struct{ BrowserContextID string }
	b.call("Target.createBrowserContext", nil, &profile)
	session := b.attach(map[string]any{"url": "about:blank", "browserContextId": profile.BrowserContextID})
	return &browser{t: b.t, connection: b.connection, session: session}
}

// The page is correct on every screen and in every direction, and axe finds nothing.
func TestWaitingOnScreens(t *testing.T) {
	t.Parallel()
	source := axe(t)
	for _, language := range []string{"en", "ru", "ar"} {
		t.Run(language, func(t *testing.T) { // one browser at a time
			s, leave := busySite(t, "after 0", "")
			b := openPage(t)
			b.call("Network.enable", nil, nil)
			b.call("Network.setExtraHTTPHeaders", map[string]any{"headers": map[string]string{"Accept-Language": language}}, nil)
			b.goTo(s.url + "mine")
			b.until(onWaitingPage + " && document.documentElement.lang === '" + language + "'")
			b.until("document.querySelector('[data-waiting=spoken]').textContent !== ''")
			b.run(source, nil)
			b.checkOnScreens("waiting-" + language)
			leave()
			s.NextNamed("mine").Leave()
		})
	}
}
