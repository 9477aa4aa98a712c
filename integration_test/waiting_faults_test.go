package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// queue_length counts the places of browsers like all others. So it bounds them.
func TestWaitingPlacesAreBounded(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1m", "queue_length 2\nerror_code 429")
	b := newVisitor(s)
	b.waits(t, "mine")
	b.waits(t, "mine")
	s.send(t, "POST", "two")
	s.awaitTickets(t, 3)
	if a := newVisitor(s).visit(t, "one too many"); a.StatusCode != http.StatusTooManyRequests || len(a.Cookies()) > 0 {
		t.Errorf("answer %d %v; expected a refusal", a.StatusCode, a.Header)
	}
	leave()
}

// When the browser of a refused ticket returns, it gets the refusal that others get, once.
func TestWaitingRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options string
		refuse  func(t *testing.T, s *site)
	}{
		"timeout": {"timeout 3s", func(t *testing.T, s *site) { s.awaitTickets(t, 1) }},
		"evicted": {"", func(t *testing.T, s *site) {
			q := s.awaitTickets(t, 2)
			testcaddy.Await(t, testcaddy.Send(t, http.MethodDelete, s.adminURL(q, q.Tickets[1].Token), "")).Want(t, http.StatusOK)
		}},
		"superseded": {"queue_length 1\nwhen_full drop_oldest", func(t *testing.T, s *site) { s.send(t, "POST", "latest") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, leave := busySite(t, "after 0\nhold 30s", c.options+"\nerror_code 429\nerror_response text/plain refused")
			b := newVisitor(s)
			b.waits(t, "mine")
			b.asks(t)
			c.refuse(t, s)
			wait.Until(t, "the page is to reload", func() bool { return b.asks(t).Text == `{"turn":true}` })
			if a := b.visit(t, "mine"); a.StatusCode != 429 || a.Text != "refused" || a.Header.Get("Retry-After") == "" {
				t.Errorf("answer %d %q %v", a.StatusCode, a.Text, a.Header)
			}
			s.wantMetric(t, `caddy_serialize_requests_total{outcome="`+name+`",queue="a_"}`, 1)
			if a := b.waits(t, "mine"); strings.Contains(a.Text, lost) {
				t.Errorf("after the refusal, the page shows %s", a.Text)
			}
			leave()
		})
	}
}

// A reload of the configuration keeps all places, also if more may enter than before.
func TestWaitingPlacesSurviveReload(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(s)
	b.waits(t, "mine")
	b.waits(t, "mine")
	s.send(t, "POST", "behind")
	s.awaitTickets(t, 3)
	for _, options := range []string{"error_code 429", "concurrency 2"} {
		s.Reload(t, s.waitingCaddyfile("after 0\nhold 9m", options))
		if a := b.waits(t, "mine"); !strings.Contains(a.Text, "You are next.") || strings.Contains(a.Text, lost) {
			t.Errorf("with %s, the page shows %s", options, a.Text)
		}
	}
	leave()
	b.isServed(t, "mine")
}

// A restart loses the places: the browser starts anew.
func TestWaitingPlacesAreLostByRestart(t *testing.T) {
	t.Parallel()
	s, _ := busySite(t, "after 0", "")
	b := newVisitor(s)
	b.waits(t, "mine")
	s.Kill()
	b.site = s.joinWaiting(t, "after 0")
	leave := b.site.occupy(t)
	b.waits(t, "mine")
	leave()
	b.isServed(t, "mine")
}

// Bug: while a process stopped, turns waited for browsers that could not reach it.
func TestWaitingPlacesEndOnStop(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	s.start(t, "{\nadmin {$ADMIN}\ngrace_period 1m\n}\n"+s.waitingCaddyfile("after 0\nhold 10m", ""))
	leave := s.occupy(t)
	for range 10 {
		b := newVisitor(s)
		b.waits(t, "mine")
		b.waits(t, "mine")
	}
	plain := s.send(t, "POST", "plain")
	s.awaitTickets(t, 12)
	s.Signal(os.Interrupt)
	leave()
	left := time.Now()
	s.NextNamed("plain").Leave()
	if idle := time.Since(left); idle > 10*time.Second {
		t.Errorf("the queue was idle for %v", idle)
	}
	wantServed(t, testcaddy.Await(t, plain), "plain")
	s.AwaitEnd()
}

// A ticket taken under a rule for several holders is of no use for a turn that must be
// exclusive. A stricter ticket is good wherever more may be inside.
func TestWaitingTicketOfAnotherRule(t *testing.T) {
	t.Parallel()
	for loose, inside := range map[string][]string{"shared_methods GET": {"strict/first"}, "concurrency 2": {"loose/first", "loose/second"}} {
		t.Run(loose, func(t *testing.T) {
			t.Parallel()
			queue := "path {$DIR}\nprefix a_\ntimeout 10m\nwaiting_page {\nafter 0\n}\n"
			s := unstartedSite(t)
			queue = strings.ReplaceAll(queue, "{$DIR}", s.dir)
			s.start(t, "http://"+s.host+" {\nserialize /loose/* {\n"+queue+loose+"\n}\nserialize /strict/* {\n"+queue+"}\nreverse_proxy "+s.Upstream.Addr+"\n}\n")
			var holders []*testcaddy.Visit
			for _, name := range inside {
				testcaddy.Send(t, http.MethodPost, s.url+name, "")
				holders = append(holders, s.NextNamed(name))
			}
			b, strict := newVisitor(s), newVisitor(s)
			b.waits(t, "loose/mine")
			b.waits(t, "loose/mine")
			strict.waits(t, "strict/mine")
			strict.waits(t, "loose/mine") // the same place
			s.awaitTickets(t, len(holders)+2)
			if a := b.waits(t, "strict/mine"); !strings.Contains(a.Text, "You are number 3 in line.") {
				t.Errorf("at the stricter line, the page shows %s", a.Text)
			}
			for _, in := range holders {
				in.Leave()
			}
			strict.isServed(t, "loose/mine")
		})
	}
}

const ownPage = `<!DOCTYPE html>
<html lang="{{.Lang}}" dir="{{.Text.dir}}">
<head><meta charset="utf-8"><title>{{.Text.heading}}</title><style>body { background: rgb(1, 2, 3); }</style></head>
<body>
<svg width="9" height="9"></svg>
{{if .Lost}}{{.Text.lost}}{{end}} {{.Number}} {{.Wait}} {{.Refresh}} {{.Paused}}
<p data-waiting="place"></p><p data-waiting="estimate"></p>
{{.Script}}
</body>
</html>
`

// A custom page gets the documented fields, and a policy under which only its script runs.
func TestWaitingOwnPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.html")
	testcaddy.WriteFile(t, file, ownPage)
	s, leave := busySite(t, "after 0\nfile "+file, "")
	b := openPage(t)
	b.goTo(s.url + "mine")
	b.until("document.querySelector('svg') !== null && " + placeIs("You are next."))
	b.until("document.title === '(1) Waiting in line' && getComputedStyle(document.body).backgroundColor === 'rgb(1, 2, 3)'")
	leave()
	s.NextNamed("mine").Leave()
	b.until("document.body?.innerText === 'served mine'")
}

// A page that cannot be rendered is refused when the configuration is loaded.
func TestWaitingOwnPageIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ page, want string }{
		{"{{.Nonsense}}", "can't evaluate field Nonsense"},
		{"{{if}}", "missing value for if"},
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

// Bug: with a hold of one second, the place was given up before the page could return.
func TestWaitingShortHold(t *testing.T) {
	t.Parallel()
	s, leave := busySite(t, "after 0\nhold 1s", "")
	b := newVisitor(s)
	b.waits(t, "mine")
	for range 4 {
		if a := b.waits(t, "mine"); a.Header.Get("Refresh") != "2" || strings.Contains(a.Text, lost) {
			t.Errorf("%v, the page shows %s", a.Header, a.Text)
		}
		time.Sleep(2300 * time.Millisecond) // as a browser does, on a slow network
	}
	leave()
}

// Bug: if a queue with the page was inside another queue of the same name, every request
// ended in a panic.
func TestWaitingPageInAQueueOfTheSameName(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	queue := func(more string) string {
		return "serialize {\npath " + t.TempDir() + "\nprefix a_\n" + more + "\n}\n"
	}
	s.start(t, "http://"+s.host+" {\n"+queue("")+"route {\n"+queue("waiting_page")+"reverse_proxy "+s.Upstream.Addr+"\n}\n}\n")
	for _, header := range [][]string{nil, navigation} {
		answer := testcaddy.Send(t, http.MethodGet, s.url+"mine", "", header...)
		s.NextNamed("mine").Leave()
		wantServed(t, testcaddy.Await(t, answer), "mine")
	}
}
