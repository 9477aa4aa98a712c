//go:build unix

package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// goTo goes to an address, and does not wait until its page is complete.
func (b *browser) goTo(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// onWaitingPage is true in a browser that shows the waiting page.
const onWaitingPage = "document.querySelector('[data-waiting=place]') !== null"

func placeIs(text string) string {
	return fmt.Sprintf("document.querySelector('[data-waiting=place]')?.textContent === %q", text)
}

// served is true in a browser that shows the upstream's answer.
func served(name string) string {
	return fmt.Sprintf("document.body?.innerText === 'served %s'", name)
}

// In a browser with JavaScript, the page counts down without being reloaded, and
// continues at once when the turn has come.
func TestWaitingInBrowser(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 200ms\nhold 15s", "")
	two := testcaddy.Send(t, "POST", c.url+"/?name=two&gate", "")
	c.awaitTickets(2)
	b := openPage(t)
	b.goTo(c.url + "/mine?a=b#c")
	b.until(placeIs("You are number 2 in the queue.") + " && document.title === '(2) Waiting in the queue'")
	b.until("[4.4, 42, 149, 5000, 7000].map(span).join() === '4 seconds,40 seconds,2 minutes,83 minutes,2 hours'")
	// The first question may come too late on a busy machine, and takes a new place. A second one does not.
	b.until("performance.getEntriesByType('resource').filter(e => e.initiatorType === 'fetch').length > 1")
	b.run("window.same = true", nil)
	leave()
	c.awaitHit("two")
	b.until(placeIs("You are next."))
	b.until("document.title === '(1) Waiting in the queue' && document.querySelector('[role=status][aria-live=polite]') !== null")
	// Refresh, which is for browsers without JavaScript, would load the page again. And this
	// is longer than hold, which is long because a browser on a busy machine may ask late.
	time.Sleep(16 * time.Second)
	b.until("window.same === true")
	c.awaitTickets(2)
	behind := testcaddy.Send(t, "POST", c.url+"/?name=behind", "") // which gets the turn if the browser does not come for it
	c.awaitTickets(3)
	c.Open("two")
	c.wantServed(two)
	b.until(served("mine") + " && location.search === '?a=b' && location.hash === '#c'")
	c.wantServed(behind)
	c.wantOrder("first", "two", "mine", "behind")
	c.awaitTickets(0)
}

// A reload and a second tab share one place, and a browser that goes back to the page finds
// it again. The tab that comes first takes the turn, and the other one lines up again. A
// private window has a place of its own.
func TestWaitingInTwoTabs(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nhold 10m", "")
	one, private := openPage(t), openPage(t)
	two := one.newTab()
	for tab, place := range map[*browser]string{one: "1", two: "2"} {
		tab.goTo(c.url + "/" + place + "?gate")
		tab.until(placeIs("You are next."))
	}
	private.goTo(c.url + "/private")
	private.until(placeIs("You are number 2 in the queue."))
	one.run("setTimeout(() => location.reload())", nil)
	one.until("performance.getEntriesByType('navigation')[0].type === 'reload' && " + placeIs("You are next."))
	one.open("about:blank")
	one.run("setTimeout(() => history.back())", nil)
	one.until(placeIs("You are next."))
	c.awaitTickets(3)
	leave()
	wait.Until(t, "one has entered", func() bool { return len(c.Order()) == 2 })
	first := c.Order()[1]
	other := map[string]*browser{"1": two, "2": one}[first]
	other.until(placeIs("You are number 2 in the queue."))
	c.wantOrder("first", first)
	c.Open("1")
	c.Open("2")
	private.until(served("private"))
	other.until("document.body?.innerText.startsWith('served')")
	c.awaitTickets(0)
}

// A browser that refuses cookies starts anew with each page, and gets in when nobody waits.
func TestWaitingWithoutCookies(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		t.Run(fmt.Sprint("script ", script), func(t *testing.T) {
			t.Parallel()
			c, leave := busySite(t, "after 0", "")
			b := openPageWith(t, `{"profile": {"default_content_setting_values": {"cookies": 2}}}`)
			b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !script}, nil)
			b.goTo(c.url + "/mine?a=b")
			b.until(placeIs("You are next."))
			leave()
			b.until(served("mine"))
		})
	}
}

// awaitTicketsOf waits until so many different tickets have been seen, of which two are left.
func (c *caddy) awaitTicketsOf(seen map[string]bool, n int) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("%d earlier places are gone, and the page waits", n-2), func() bool {
		tickets := c.queue("a_").Tickets
		for _, ticket := range tickets {
			seen[ticket.Token] = true
		}
		return len(seen) == n && len(tickets) == 2
	})
}

// Bug: after a quarter of a minute without a connection, the page gave way to the browser's own error
// page, which stayed when the connection was back.
func TestWaitingWithoutConnection(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nhold 10m", "")
	b := openPage(t)
	b.call("Network.enable", nil, nil)
	connect := func(connected bool) {
		b.call("Network.emulateNetworkConditions", map[string]any{"offline": !connected, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
	}
	b.goTo(c.url + "/mine")
	b.until(placeIs("You are next."))
	b.run("window.same = true", nil)
	connect(false)
	b.until("document.querySelector('[data-waiting=state]').textContent !== ''")
	time.Sleep(20 * time.Second)
	b.until("window.same === true")
	connect(true)
	b.until("document.querySelector('[data-waiting=state]').textContent === ''")
	leave()
	b.until(served("mine"))
}

// Bug: if only the page was removed, its script's request waited in the queue for its
// turn. The answer was thrown away, and the page queued again. Bug: if the queue was removed, the page said
// for ever that the connection was lost, and its script kept asking the upstream.
func TestWaitingPageIsTakenAway(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nhold 15s", "")
	b := openPage(t)
	b.goTo(c.url + "/mine")
	b.until(placeIs("You are next."))
	seen := make(map[string]bool)
	c.awaitTicketsOf(seen, 2) // on a busy machine, the first place may be gone before the reload is over
	check(t, c.reload(setup{site: behindQueue("prefix a_\ntimeout 10m")}))
	c.awaitTicketsOf(seen, 4) // the page has come again; its first place and its script's are gone
	leave()
	b.until(served("mine"))
	c.awaitTickets(0)

	check(t, c.reload(setup{site: waitingSite("after 0\nhold 10m", "")}))
	c.occupy("second")
	b.goTo(c.url + "/again")
	b.until(placeIs("You are next."))
	check(t, c.reload(setup{site: "reverse_proxy {$UPSTREAM}"}))
	b.until(served("again"))
}

// The page is correct in each state, on every screen and in every direction, and axe finds nothing.
// What a visitor waits for comes without a reload by hand.
func TestWaitingOnScreens(t *testing.T) {
	t.Parallel()
	source := axe(t)
	b := openPage(t)
	b.call("Network.enable", nil, nil)
	for name, test := range map[string]struct {
		languages []string
		page      string
		comes     func(c *caddy)
	}{
		"waiting": {[]string{"en", "ru", "ar"}, "", func(c *caddy) {
			c.occupy("first")
			b.goTo(c.url + "/mine")
		}},
		"opens": {[]string{"en", "ar"}, "opens 2126-11-27T10:00:00+01:00", func(c *caddy) { b.goTo(c.url + "/mine") }},
		"drawn": {[]string{"en"}, "opens " + time.Now().Add(2*time.Minute).Format(time.RFC3339), func(c *caddy) {
			c.pause("a_", "0")
			for range 2 { // which proves its cookie
				b.open(c.url + "/mine")
				b.until("document.body.innerText.includes('It opens: ')")
			}
			check(t, c.reload(setup{site: waitingSite("after 0\nopens 2000-01-01T00:00:00Z", "")}))
			b.until("document.body.innerText.includes('You were number 1 in the list for the draw.') && document.body.innerText.includes('The queue is paused.')")
		}},
		"lost": {[]string{"en"}, "hold 3s", func(c *caddy) {
			c.occupy("first")
			b.goTo(c.url + "/mine")
			b.until(placeIs("You are next."))
			b.goTo("about:blank")
			c.awaitTickets(1)
			b.goTo(c.url + "/mine")
			b.until("document.querySelector('.lost') !== null")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			for _, language := range test.languages {
				b.call("Network.setExtraHTTPHeaders", map[string]any{"headers": map[string]string{"Accept-Language": language}}, nil)
				test.comes(start(t, setup{site: waitingSite("after 0\n"+test.page, "")}))
				b.until(onWaitingPage + " && document.documentElement.lang === '" + language + "'")
				b.until("document.querySelector('[data-waiting=spoken]').textContent !== ''")
				b.run(source, nil)
				b.checkOnScreens(name + "-" + language)
			}
		})
	}
}
