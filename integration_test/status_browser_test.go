package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// manyQueues is a site with a queue for each directory, and the status page.
func manyQueues(t *testing.T, options string, names ...string) *site {
	t.Helper()
	return manyQueuesIn(t, t.TempDir(), options, names...)
}

func manyQueuesIn(t *testing.T, dir, options string, names ...string) *site {
	t.Helper()
	s := unstartedSite(t)
	s.dir = dir
	var text strings.Builder
	fmt.Fprintf(&text, "http://%s {\n\tunique_ids\n\tserialize_status /status {\n\t\tcontrols\n\t}\n", s.host)
	for i, name := range names {
		fmt.Fprintf(&text, "\tserialize /%d/* {\n\t\tpath %s\n\t\tprefix %s\n\t\ttimeout 10m\n%s\n\t}\n", i, s.dir, name, options)
	}
	fmt.Fprintf(&text, "\treverse_proxy %s\n}\n", s.Upstream.Addr)
	s.start(t, text.String())
	return s
}

// fill sends requests to a queue: so many are inside, and so many wait.
func (s *site) fill(t *testing.T, queue, n int) (leave func()) {
	t.Helper()
	var answers []<-chan testcaddy.Answer
	for i := range n {
		answers = append(answers, s.send(t, "POST", fmt.Sprintf("%d/checkout/%d?secret", queue, i)))
		s.awaitAll(t, i+1)
	}
	return func() {
		for range n {
			s.Next().Leave()
		}
		for _, answer := range answers {
			testcaddy.Await(t, answer)
		}
	}
}

// awaitAll waits until so many have tickets in all queues together.
func (s *site) awaitAll(t *testing.T, n int) {
	t.Helper()
	wait.Eventually(t, "all have tickets", func() error {
		tickets := 0
		for _, q := range s.queues(t) {
			tickets += len(q.Tickets)
		}
		if tickets != n {
			return fmt.Errorf("%d tickets; expected %d", tickets, n)
		}
		return nil
	})
}

// check asks axe whether everybody can use the page as it is now.
func (b *browser) check(name string) {
	b.t.Helper()
	var faults []string
	b.run(`axe.run({resultTypes: ['violations']}).then(found => found.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.failureSummary + ' ' + n.html)))`, &faults)
	for _, fault := range faults {
		b.t.Errorf("%s: %s", name, fault)
	}
}

// axe is the source of axe-core, which checks pages for accessibility.
func axe(t *testing.T) string {
	t.Helper()
	npm := testcaddy.Need(t, "npm", "apt-get install npm")
	root, err := exec.CommandContext(t.Context(), npm, "root", "--global").Output()
	if err != nil {
		t.Fatalf("asking npm where its modules are: %v", err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "axe-core", "axe.min.js"))
	if err != nil {
		t.Skipf("axe-core is missing; install it with: npm install --global axe-core (%v)", err)
	}
	return string(source)
}

// screens are what the page is looked at with.
var screens = []struct {
	name, scheme  string
	width, height int
}{
	{"light", "light", 1200, 800},
	{"dark", "dark", 1200, 800},
	{"phone", "light", 390, 844},
}

// The page is correct on every screen: it has the right background and does not scroll
// sideways. axe finds nothing, with and without tickets, folded and unfolded.
func TestStatusOnScreens(t *testing.T) {
	t.Parallel()
	source := axe(t)
	long := strings.Repeat("a_very_long_name_of_a_queue_", 8)
	names := []string{"checkout_", "reports_", long}
	for i := range 197 {
		names = append(names, fmt.Sprintf("tenant_%03d_", i))
	}
	for _, c := range []struct {
		name  string
		names []string
		queue int // of the requests
		n     int
		open  bool
	}{
		{"empty", nil, 0, 0, false},
		{"idle", names[:2], 0, 0, true},
		{"busy", names[:2], 0, 5, true},
		{"long", names[:3], 2, 3, true},
		{"many", names, 0, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) { // one browser at a time
			s := manyQueuesIn(t, "/var/lib/caddy/queues", "queue_length 4\nengine memory", c.names...) // which needs no directory
			leave := s.fill(t, c.queue, c.n)
			if c.name == "busy" {
				testcaddy.Get(t, s.url+"0/more").Want(t, http.StatusServiceUnavailable)
			}
			b := openBrowser(t, s.url+"status")
			b.run(source, nil)
			if c.open {
				b.run("document.querySelectorAll('details').forEach(e => e.open = true)", nil)
			}
			b.checkOnScreens(c.name)
			leave()
		})
	}
}

// The page follows the queue while somebody reads a table. Bug: a click there froze it,
// and its head still said "live".
func TestStatusFollowsWhileInUse(t *testing.T) {
	t.Parallel()
	s := manyQueues(t, "", "checkout_", "reports_")
	leave := s.fill(t, 0, 1)
	b := openBrowser(t, s.url+"status")
	b.until("document.getElementById('state').textContent === 'live'")
	b.until("document.querySelector('.name').textContent.includes('checkout_')")
	b.run("document.querySelector('summary').click(); document.querySelector('.scroll').focus()", nil)
	b.until("document.activeElement.className === 'scroll'")
	waiting := s.send(t, "GET", "0/two")
	b.until("document.querySelectorAll('tbody tr').length === 2 && document.querySelector('tbody .is-waiting') !== null")
	b.until("document.querySelector('details').open && document.activeElement.className === 'scroll'")
	b.until("document.querySelector('.holder').textContent.includes('POST') && document.querySelector('.holder').textContent.includes('/0/checkout/0')")
	var text string
	if b.run("document.body.innerText", &text); strings.Contains(text, "secret") {
		t.Error("the page shows the query string of a request")
	}
	leave()
	s.Next().Leave()
	testcaddy.Await(t, waiting)
	b.until("document.querySelectorAll('tbody tr').length === 0 && document.getElementById('state').textContent === 'live'")

	// The filter keeps what it finds, and survives a reload of the page.
	b.run("document.getElementById('filter-text').value = 'REP'; document.getElementById('filter-text').dispatchEvent(new Event('input'))", nil)
	b.until("document.querySelectorAll('details').length === 1 && document.getElementById('sum').textContent.startsWith('1 queue of 2')")
	var url string
	b.run("location.href", &url)
	b.visit("about:blank")
	b.visit(url)
	b.until("document.getElementById('filter-text')?.value === 'REP' && document.querySelectorAll('details').length === 1")

	s.Kill()
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
		if err := checkPicture(b.picture(), screen.scheme == "dark"); err != nil {
			b.t.Errorf("%s: %v", screen.name, err)
		}
		var width int
		if b.run("document.documentElement.scrollWidth", &width); width > screen.width {
			b.t.Errorf("%s: the page is %d wide", screen.name, width)
		}
		b.check(screen.name)
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

// Without JavaScript, the page shows its first state. Bug: it showed nothing.
func TestStatusWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := manyQueues(t, "", "checkout_", "reports_")
	leave := s.fill(t, 0, 2)
	b := openPage(t)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.visit(s.url + "status?filter=check")
	for _, want := range []string{"checkout_", "1 queue of 2", "Reload", "as of ", "/0/checkout/0"} {
		b.until("document.body.innerText.includes(" + strconv.Quote(want) + ")")
	}
	b.until("getComputedStyle(document.querySelector('.control')).display === 'none'") // they need JavaScript
	b.keep("noscript")
	leave()
}

// With controls, the page evicts a ticket after asking.
func TestStatusEvictsInBrowser(t *testing.T) {
	t.Parallel()
	s := manyQueues(t, "", "checkout_")
	one := s.send(t, "GET", "0/one")
	inside := s.NextNamed("0/one")
	two := s.send(t, "GET", "0/two")
	s.awaitAll(t, 2)
	b := openBrowser(t, s.url+"status")
	b.run("document.querySelector('details').open = true", nil)
	evict := func(state, answer string) {
		b.run("window.confirm = question => { window.asked = question; return "+answer+" }", nil)
		b.run("document.querySelector('button[data-state="+state+"]').click()", nil)
	}
	evict("waiting", "false")
	b.until("window.asked.includes('refused')")
	s.awaitAll(t, 2)
	evict("waiting", "true")
	testcaddy.Await(t, two).Want(t, http.StatusServiceUnavailable)
	b.until("document.querySelectorAll('tbody tr').length === 1")
	evict("inside", "true")
	b.until("window.asked.includes('cancels')")
	testcaddy.Await(t, one).Want(t, http.StatusGatewayTimeout)
	inside.Leave()
	s.awaitLog(t, "status page: evict", 2)

	// What is evicted twice is gone, and the page says so.
	b.run("const gone = document.createElement('button'); gone.dataset.action = 'evict'; gone.dataset.token = '1'; gone.dataset.state = 'inside';"+
		" gone.dataset.queue = "+strconv.Quote(s.dir+"/checkout_")+"; document.getElementById('queues').append(gone); gone.click()", nil)
	b.until("document.getElementById('message').textContent.includes('no ticket 1 in queue')")
}
