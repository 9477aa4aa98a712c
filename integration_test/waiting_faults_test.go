package integration_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// A browser that refuses cookies would return for ever without a place. It gets the page
// once, and then waits with an open connection, as without the page.
func TestWaitingCookiesRefused(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 4s", "")
	refuses := newVisitor(s, "User-Agent", "refuses cookies")
	wantPage(t, testcaddy.Await(t, refuses.going(t, "two")))
	s.awaitTickets(t, 2)
	again := refuses.going(t, "two") // its first ticket is in the queue still
	s.awaitTickets(t, 3)
	s.awaitTickets(t, 2)                                       // the first one is given up
	wantPage(t, testcaddy.Await(t, refuses.going(t, "later"))) // it could be another browser that looks like it
	s.awaitTickets(t, 3)
	later := refuses.going(t, "later")
	s.awaitTickets(t, 4)
	s.awaitTickets(t, 3)
	newVisitor(s, "User-Agent", "takes cookies").waits(t, "three") // is another one
	s.awaitTickets(t, 4)
	for _, open := range []<-chan testcaddy.Answer{again, later} {
		if len(open) > 0 {
			t.Fatalf("it was answered: %v", <-open)
		}
	}
	leave()
	s.NextNamed("two").Leave()
	wantServed(t, testcaddy.Await(t, again), "two")
	s.NextNamed("later").Leave()
	wantServed(t, testcaddy.Await(t, later), "later")
}

// A client that drops cookies holds one place without a connection, however often it
// asks. And queue_length counts the places of browsers like all others.
func TestWaitingPlacesAreFew(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1m", "queue_length 3\nerror_code 429")
	b := newVisitor(s)
	b.waits(t, "mine")
	var open []func()
	for i := range 2 {
		open = append(open, goingAway(t, s.url+"more", navigation...))
		s.awaitTickets(t, i+3)
	}
	if a := newVisitor(s).visit(t, "one too many"); a.StatusCode != http.StatusTooManyRequests || len(a.Cookies()) > 0 {
		t.Errorf("answer %d %v; expected a refusal", a.StatusCode, a.Header)
	}
	for _, gone := range open {
		gone()
	}
	s.awaitTickets(t, 2)
	b.waits(t, "mine") // the cookie comes back
	newVisitor(s).waits(t, "another")
	s.awaitTickets(t, 3)
	leave()
}

// When the browser of a refused ticket returns, it gets the refusal that others get.
func TestWaitingRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, options, body string
		status              int
		idle                bool // its turn has come
	}{
		{"evicted", "error_code 429\nerror_response text/plain refused", "refused", 429, false},
		{"evicted while its turn waits", "", "", 503, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, leave := busySite(t, "after 0\nhold 30s", c.options)
			b := newVisitor(s)
			for !s.evictsVisitor(t, b, c.idle, leave) { // it was too late
				leave = s.occupy(t)
				b = newVisitor(s)
			}
			s.awaitTickets(t, map[bool]int{false: 1, true: 0}[c.idle])
			a := b.visit(t, "mine")
			if a.StatusCode != c.status && !c.idle || a.Text != c.body || a.Header.Get("Retry-After") == "" || len(b.cookies) > 0 {
				t.Errorf("answer %d %q %v, cookies %v", a.StatusCode, a.Text, a.Header, b.cookies)
			}
			if !c.idle {
				leave()
			}
			b.isServed(t, "mine")
		})
	}
}

// evictsVisitor gives a browser a place and evicts its ticket, at once or when its turn
// has come. A turn waits for two seconds, in which a busy machine may not get that far.
func (s *site) evictsVisitor(t *testing.T, b *visitor, idle bool, leave func()) bool {
	t.Helper()
	b.waits(t, "mine")
	q := s.awaitTickets(t, 2)
	ticket := q.Tickets[1]
	if idle {
		s.follow(t, b)
		leave()
		wait.Eventually(t, "its turn has come", func() error {
			if left := s.queues(t)[0].Tickets; len(left) > 0 && left[len(left)-1].State != serializer.StateInside {
				return fmt.Errorf("tickets %+v", left)
			}
			return nil
		})
	}
	a := testcaddy.Await(t, testcaddy.Send(t, http.MethodDelete, s.adminURL(q, ticket.Token), ""))
	if !idle {
		a.Want(t, http.StatusOK)
	}
	return a.StatusCode == http.StatusOK
}

// The timeout also applies to browsers with the page.
func TestWaitingTimesOut(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "timeout 1s\nerror_code 504")
	b := newVisitor(s)
	b.waits(t, "mine")
	s.awaitTickets(t, 1)
	if a := b.visit(t, "mine"); a.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("answer %d; expected the refusal", a.StatusCode)
	}
	leave()
}

// follow opens the stream of the page's script, and returns the names and data of its
// events until the test ends.
func (s *site) follow(t *testing.T, b *visitor) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"mine", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Orderly-Waiting", "live")
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	resp, err := new(http.Transport).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("answer %d %s; expected events", resp.StatusCode, kind)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if _, text, ok := strings.Cut(lines.Text(), ": "); ok {
				events <- text
			}
		}
	}()
	return events
}

// A reload of the configuration keeps all places. The page's stream ends then, and the
// next stream continues.
func TestWaitingPlacesSurviveReload(t *testing.T) {
	t.Parallel()
	s := waitingSite(t, "after 0\nhold 10m", "")
	leave := s.occupy(t)
	b := newVisitor(s)
	b.waits(t, "mine")
	events := s.follow(t, b)
	s.Reload(t, s.waitingCaddyfile("after 0\nhold 9m", ""))
	for range events { // until the stream ends
	}
	three := s.send(t, "POST", "three")
	s.awaitAll(t, 3)
	if a := b.waits(t, "mine"); !strings.Contains(a.Text, "You are next.") || strings.Contains(a.Text, lost) {
		t.Errorf("the page shows %s", a.Text)
	}
	leave()
	b.isServed(t, "mine")
	s.NextNamed("three").Leave()
	testcaddy.Await(t, three)
}

// A reload that changes the limit keeps the places, too. Browsers with a place enter by
// the rule of the configuration in which they arrived.
func TestWaitingPlacesSurviveAnotherConcurrency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		inside        int
	}{
		{"concurrency 1", "concurrency 2", 1},
		{"concurrency 2", "concurrency 1", 2},
	} {
		t.Run(c.after, func(t *testing.T) {
			t.Parallel()
			s := waitingSite(t, "after 0\nhold 10m", c.before)
			var leave func()
			for range c.inside {
				leave = s.occupy(t)
			}
			b := newVisitor(s)
			b.waits(t, "mine")
			s.Reload(t, s.waitingCaddyfile("after 0\nhold 10m", c.after))
			if a := b.waits(t, "mine"); !strings.Contains(a.Text, "You are next.") || strings.Contains(a.Text, lost) {
				t.Errorf("the page shows %s", a.Text)
			}
			leave()
			b.isServed(t, "mine")
		})
	}
}

// A restart loses the places, and the page says so.
func TestWaitingPlacesAreLostByRestart(t *testing.T) {
	t.Parallel()
	s, _ := busySite(t, "after 0", "")
	b := newVisitor(s)
	b.waits(t, "mine")
	s.Kill()
	after := s.joinWaiting(t, "after 0")
	leave := after.occupy(t)
	b.site = after
	if a := b.waits(t, "mine"); !strings.Contains(a.Text, lost) {
		t.Errorf("the page does not say that the place is gone: %s", a.Text)
	}
	leave()
}

// A reload of the page that reaches another process neither loses the place nor takes
// another one. The page soon returns, until it has found its process.
func TestWaitingInTwoProcesses(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "")
	other := s.joinWaiting(t, "after 0")
	b := newVisitor(s)
	b.waits(t, "mine")
	b.waits(t, "mine") // the cookie has the ticket's number now, if it had not before
	three := other.send(t, "POST", "three")
	s.awaitTickets(t, 3)
	b.site = other
	a := b.waits(t, "mine")
	if !strings.Contains(a.Text, "You are next.") || strings.Contains(a.Text, lost) || a.Header.Get("Refresh") != "1" || len(a.Cookies()) > 0 {
		t.Errorf("the other process answers %v %s", a.Header, a.Text)
	}
	if event := <-other.follow(t, b); event != "elsewhere" {
		t.Errorf("event %s; expected that the ticket is elsewhere", event)
	}
	s.awaitTickets(t, 3)
	b.site = s
	events := s.follow(t, b)
	leave()
	for event := range events {
		if event == "turn" {
			break
		}
	}
	b.site = other
	b.waits(t, "mine") // the other process does not take a second ticket
	b.site = s
	b.isServed(t, "mine")
	s.NextNamed("three").Leave()
	testcaddy.Await(t, three)
}

// Bug: a process did not know of a ticket that was issued since it had last read the
// queue. It sent the browser to the end.
func TestWaitingPlaceIsNewElsewhere(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0", "")
	other := s.joinWaiting(t, "after 0")
	b := newVisitor(s)
	for range 5 {
		b.waits(t, "mine")
		b.waits(t, "mine")
		if event := <-other.follow(t, b); event != "elsewhere" { // which has read the queue now
			t.Errorf("event %s; expected that the ticket is elsewhere", event)
		}
		b = newVisitor(s)
	}
	leave()
}

const ownPage = `<!DOCTYPE html>
<html lang="{{.Lang}}" dir="{{.Dir}}">
<head><meta charset="utf-8"><title>{{.Title}}</title><style>body { background: rgb(1, 2, 3); }</style></head>
<body>
<svg width="9" height="9"></svg>
{{if .Lost}}{{.LostText}}{{end}} {{.Place}} {{.Wait}} {{.Refresh}}
<p data-waiting="place">{{.PlaceText}}</p><p data-waiting="estimate">{{.EstimateText}}</p>
{{.Script}}
</body>
</html>
`

// A custom page gets the documented fields, and a policy under which only its script
// runs.
func TestWaitingOwnPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.html")
	testcaddy.WriteFile(t, file, ownPage)
	s, leave := busySite(t, "after 0\nfile "+file, "")
	b := openPage(t)
	b.goTo(s.url + "mine")
	b.until("document.querySelector('svg') !== null && " + placeIs("You are next."))
	b.until("document.title === '(1) Waiting in line' && getComputedStyle(document.body).backgroundColor === 'rgb(1, 2, 3)'")
	two := s.send(t, "POST", "two")
	s.awaitTickets(t, 3)
	leave()
	s.NextNamed("mine").Leave()
	b.until("document.body?.innerText === 'served mine'")
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
}

// A page that cannot be rendered is refused when the configuration is loaded.
func TestWaitingOwnPageIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ page, want string }{
		{"{{.Nonsense}}", "can't evaluate field Nonsense"},
		{"{{if}}", "missing value for if"},
		{strings.Repeat("x", 1<<20+1), "expected at most 1MiB"},
		{"", "no such file"},
	} {
		file := filepath.Join(t.TempDir(), "page.html")
		if c.page != "" {
			testcaddy.WriteFile(t, file, c.page)
		}
		config := filepath.Join(t.TempDir(), "Caddyfile")
		testcaddy.WriteFile(t, config, fmt.Sprintf("http://:0 {\n\tserialize {\n\t\twaiting_page {\n\t\t\tfile %s\n\t\t}\n\t}\n}\n", file))
		_, text, code := testcaddy.Output(t, "validate", "--config", config, "--adapter", "caddyfile")
		if code == 0 || !strings.Contains(text, c.want) || !strings.Contains(text, "waiting_page") {
			t.Errorf("page %.20q: exit code %d, %s; expected %q", c.page, code, text, c.want)
		}
	}
}

// Bug: while a process stopped, turns waited for browsers that could not reach it.
func TestWaitingPlacesEndOnStop(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	s.start(t, "{\nadmin {$ADMIN}\ngrace_period 1m\n}\n"+s.waitingCaddyfile("after 0\nhold 10m", ""))
	leave := s.occupy(t)
	newVisitor(s).waits(t, "mine")
	plain := s.send(t, "POST", "plain")
	s.awaitTickets(t, 3)
	s.Signal(os.Interrupt)
	s.awaitTickets(t, 2)
	leave()
	s.NextNamed("plain").Leave()
	wantServed(t, testcaddy.Await(t, plain), "plain")
	s.AwaitEnd()
}

// A site that sets a Content-Security-Policy where there is none leaves the page its own.
func TestWaitingPolicyOfTheSite(t *testing.T) {
	t.Parallel()
	for header, own := range map[string]bool{"?Content-Security-Policy": true, "Content-Security-Policy": false} {
		s := unstartedSite(t)
		s.start(t, strings.Replace(s.waitingCaddyfile("after 0", ""), "\tserialize {", "\theader {\n-Server\n"+header+" \"default-src 'self'\"\n}\n\tserialize {", 1))
		leave := s.occupy(t)
		a := newVisitor(s).waits(t, "mine")
		if policy := a.Header.Get("Content-Security-Policy"); strings.Contains(policy, "sha256-") != own {
			t.Errorf("header %s: the page has the policy %s", header, policy)
		}
		leave()
	}
}
