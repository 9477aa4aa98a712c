//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// manyQueues is a site with a status page with controls, and a queue for each directory.
func manyQueues(options string, names ...string) string {
	var site strings.Builder
	site.WriteString("unique_ids\nserialize_status /status {\ncontrols\n}\n")
	for i, name := range names {
		fmt.Fprintf(&site, "serialize /%d/* {\npath {$DIR}\nprefix %s\ntimeout 10m\n%s\n}\n", i, name, options)
	}
	return site.String() + "reverse_proxy {$UPSTREAM}"
}

// fill sends requests to a queue: so many are inside, and so many wait.
func (c *caddy) fill(queue, n int) {
	c.t.Helper()
	for i := range n {
		testcaddy.Send(c.t, "POST", fmt.Sprintf("%s/%d/checkout/%d/with/a/path/that/is/longer/than/a/phone/is/wide?gate&secret", c.url, queue, i), "")
		wait.Until(c.t, "it has a ticket", func() bool { return strings.Count(c.Ask("/serialize/queues"), `"token"`) == i+1 })
	}
}

// check asks axe whether everybody can use the page as it is now. Comparing its colors takes
// most of the time, so that is left out where others have shown them.
func (b *browser) check(name string, colors bool) {
	b.t.Helper()
	var faults []string
	b.run(fmt.Sprintf(`axe.run({resultTypes: ['violations'], rules: {'color-contrast': {enabled: %t}}}).then(`, colors)+
		`found => found.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.failureSummary + ' ' + n.html)))`, &faults)
	for _, fault := range faults {
		b.t.Errorf("%s: %s", name, fault)
	}
}

// axe is the source of axe-core, which checks pages for accessibility.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(testcaddy.NeedModule(t, "axe-core", "axe.min.js"))
	check(t, err)
	return string(source)
}

// screens are what the page is looked at with.
var screens = []struct {
	name, scheme  string
	width, height int
}{
	{"light", "light", 1280, 800},
	{"dark", "dark", 1280, 800},
	{"phone", "light", 360, 780},
}

// The page is correct on every screen: it does not scroll sideways. axe finds nothing, with
// and without tickets, folded and unfolded. Bug: "13 gone, 32 queue_full" read
// "gone 32" where the line broke, and the end of a path was cut off.
func TestStatusOnScreens(t *testing.T) {
	t.Parallel()
	source := axe(t)
	long := strings.Repeat("a_very_long_name_of_a_queue_", 8)
	names := []string{"checkout_", "reports_", long}
	for i := range 17 {
		names = append(names, fmt.Sprintf("tenant_%03d_", i))
	}
	b := openPage(t)
	for _, test := range []struct {
		name     string
		names    []string
		queue    int // of the requests
		n        int
		open     bool
		options  string
		visitors int
	}{
		{"empty", nil, 0, 0, false, "", 0},
		{"busy", names[:2], 0, 5, true, "", 0},
		{"long", names[:3], 2, 3, true, "", 0},
		{"many", names, 0, 3, false, "", 0},
		{"visits", names[:1], 0, 1, true, "concurrency 3\nqueue_length 2000000\nvisit 5m 30m\nwaiting_page {\nafter 0\n}", 4},
		{"opens", names[:1], 0, 0, true, "waiting_page {\nopens 2126-11-27T10:00:00+01:00\n}", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.t = t
			c := start(t, setup{dir: "/var/lib/caddy/queues", site: manyQueues("queue_length 4\nengine memory\n"+test.options, test.names...)}) // which needs no directory
			c.fill(test.queue, test.n)
			for range test.visitors {
				v := newVisitor(c)
				v.opens("0/tickets")
				v.opens("0/tickets")
			}
			if test.name == "busy" {
				c.get("/0/more").Want(t, http.StatusServiceUnavailable)
			}
			b.open(c.url + "/status")
			b.run(source, nil)
			if test.open {
				b.run("document.querySelectorAll('details').forEach(e => e.open = true)", nil)
			}
			b.checkOnScreens(test.name)
		})
	}
}

// The page follows the queue while somebody reads a table. Bug: a click there froze it,
// and its head still said "live".
func TestStatusFollowsWhileInUse(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: manyQueues("", "checkout_", "reports_")})
	c.fill(0, 1)
	b := openPage(t)
	b.open(c.url + "/status")
	b.until("document.getElementById('state').textContent === 'live'")
	b.until("document.querySelector('.name').textContent.includes('checkout_')")
	b.run("document.querySelector('summary').click(); document.querySelector('.scroll').focus()", nil)
	b.until("document.activeElement.className === 'scroll'")
	waiting := c.getting("/0/two")
	b.until("document.querySelectorAll('tbody tr').length === 2 && document.querySelector('tbody .is-waiting') !== null")
	b.until("document.querySelector('details').open && document.activeElement.className === 'scroll'")
	b.until("document.querySelector('.holder').textContent.includes('POST') && document.querySelector('.holder').textContent.includes('/0/checkout/0')")
	var text string
	if b.run("document.body.innerText", &text); strings.Contains(text, "secret") {
		t.Error("the page shows the query string of a request")
	}
	c.OpenAll()
	c.wantServed(waiting)
	b.until("document.querySelectorAll('tbody tr').length === 0 && document.getElementById('state').textContent === 'live'")

	// The filter keeps what it finds, and survives a reload of the page.
	b.run("document.getElementById('filter-text').value = 'REP'; document.getElementById('filter-text').dispatchEvent(new Event('input'))", nil)
	b.until("document.querySelectorAll('details').length === 1 && document.getElementById('sum').textContent.startsWith('1 queue of 2')")
	var url string
	b.run("location.href", &url)
	b.open("about:blank")
	b.open(url)
	b.until("document.getElementById('filter-text')?.value === 'REP' && document.querySelectorAll('details').length === 1")

	c.Kill()
	b.until("/^not up to date since .*: the server cannot be reached$/.test(document.getElementById('state').textContent)")
	b.until("document.querySelectorAll('details').length === 1")
	b.keep("gone")
}

// checkOnScreens checks the page on every screen.
func (b *browser) checkOnScreens(name string) {
	b.t.Helper()
	for _, screen := range screens {
		b.screen(screen.width, screen.height, screen.scheme)
		b.keep(name + "-" + screen.name)
		var width int
		if b.run("document.documentElement.scrollWidth", &width); width > screen.width {
			b.t.Errorf("%s: the page is %d wide", screen.name, width)
		}
		b.until("[...document.querySelectorAll('.outcome')].every(e => e.offsetHeight <= 30)")
		b.until("[...document.querySelectorAll('.holder, .request, .figure')].every(e => e.scrollWidth <= e.clientWidth + 1)")
		b.check(screen.name, screen.name != "phone") // which has the colors of the first
	}
}

// keep writes a picture to look at, and for the documents, where
// STATUS_PICTURES names a directory.
func (b *browser) keep(name string) {
	b.t.Helper()
	if dir := os.Getenv("STATUS_PICTURES"); dir != "" {
		testcaddy.WriteFile(b.t, filepath.Join(dir, name+".png"), string(b.picture()))
	}
}

// With controls, the page evicts a ticket after asking. Without JavaScript, it shows its first
// state, and no controls. Bug: it showed nothing.
func TestStatusEvictsInBrowser(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: manyQueues("", "checkout_")})
	one := c.getting("/0/one?gate")
	c.awaitHit("0/one")
	two := c.getting("/0/two")
	c.awaitQueue("checkout_", 1, 1)
	b := openPage(t)
	for _, script := range []bool{false, true} {
		b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !script}, nil)
		b.open(c.url + "/status")
		b.run("document.querySelector('details').open = true", nil)
		b.until("document.body.innerText.includes('/0/two')")
		b.until(fmt.Sprintf("(getComputedStyle(document.querySelector('.control')).display !== 'none') === %t", script))
	}
	evict := func(state, answer string) {
		b.run("window.confirm = question => { window.asked = question; return "+answer+" }", nil)
		b.run("document.querySelector('button[data-state="+state+"]').click()", nil)
	}
	evict("waiting", "false")
	b.until("window.asked.includes('refused')")
	c.awaitQueue("checkout_", 1, 1)
	evict("waiting", "true")
	(<-two).Want(t, http.StatusServiceUnavailable)
	b.until("document.querySelectorAll('tbody tr').length === 1")
	evict("inside", "true")
	b.until("window.asked.includes('cancels')")
	(<-one).Want(t, http.StatusGatewayTimeout)
	c.awaitEntries("operator: evict", 2)

	// What is evicted twice is gone, and the page says so.
	b.run("const gone = document.createElement('button'); gone.dataset.action = 'evict'; gone.dataset.token = '1'; gone.dataset.state = 'inside';"+
		" gone.dataset.queue = "+strconv.Quote(c.dir+"/checkout_")+"; document.getElementById('queues').append(gone); gone.click()", nil)
	b.until("document.getElementById('message').textContent.includes('no ticket 1 in queue')")
}
