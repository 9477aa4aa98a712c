//go:build unix

package integration_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// When the browser of a refused ticket returns, it gets the refusal that others get, once.
func TestWaitingRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options string
		refuse  func(c *caddy)
	}{
		"timeout": {"timeout 3s", func(c *caddy) { c.awaitTickets(1) }},
		"evicted": {"", func(c *caddy) {
			token := c.awaitQueue("a_", 1, 1).Tickets[1].Token
			c.API("DELETE", c.path("a_")+"/"+token, "").Want(t, http.StatusOK)
		}},
		"superseded": {"queue_length 1\nwhen_full drop_oldest", func(c *caddy) { testcaddy.Send(t, "POST", c.url+"/?name=latest", "") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := busySite(t, "after 0\nhold 30s", test.options+"\nerror_code 429\nerror_response text/plain refused")
			b := newVisitor(c)
			b.waits("mine")
			b.asks("mine")
			test.refuse(c)
			b.awaitTurn("mine")
			if a := b.opens("mine"); a.StatusCode != 429 || a.Text != "refused" || a.Header.Get("Retry-After") == "" {
				t.Errorf("answer %d %q %v", a.StatusCode, a.Text, a.Header)
			}
			c.wantMetric(`requests_total{outcome="`+name+`",queue="a_"}`, "1")
			b.finds("", false)
		})
	}
}

// A reload of the configuration keeps all places, also if more may enter than before. queue_length counts
// the places of browsers like all others.
func TestWaitingPlacesSurviveReload(t *testing.T) {
	t.Parallel()
	c, leave := busySite(t, "after 0\nhold 10m", "")
	b := newVisitor(c)
	b.waits("mine")
	b.waits("mine")
	testcaddy.Send(t, "POST", c.url+"/?name=behind", "")
	c.awaitTickets(3)
	for _, options := range []string{"queue_length 2\nerror_code 429", "concurrency 2"} {
		check(t, c.reload(setup{site: waitingSite("after 0\nhold 9m", options)}))
		b.finds("You are next.", false)
		if strings.HasPrefix(options, "queue_length") {
			if a := newVisitor(c).opens("one-too-many").Want(t, http.StatusTooManyRequests); len(a.Cookies()) > 0 {
				t.Errorf("the refusal is %v", a.Header)
			}
		}
	}
	leave()
	b.isServed("mine")
}

// A ticket taken under a rule for several holders is of no use for a turn that must be
// exclusive, and is given up. A stricter ticket is good wherever more may be inside.
func TestWaitingTicketOfAnotherRule(t *testing.T) {
	t.Parallel()
	const queue = "path {$DIR}\nprefix a_\ntimeout 10m\nwaiting_page {\nafter 0\n}\n"
	for loose, inside := range map[string][]string{"shared_methods GET": {"strict/first"}, "concurrency 2": {"loose/first", "loose/second"}} {
		t.Run(loose, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: "serialize /loose/* {\n" + queue + loose + "\n}\nserialize /strict/* {\n" + queue + "}\nreverse_proxy {$UPSTREAM}"})
			for _, name := range inside {
				testcaddy.Send(t, "POST", c.url+"/"+name+"?gate", "")
				c.awaitHit(name)
			}
			b, strict := newVisitor(c), newVisitor(c)
			b.waits("loose/mine")
			b.waits("loose/mine")
			strict.waits("strict/mine")
			strict.waits("loose/mine") // the same place
			c.awaitTickets(len(inside) + 2)
			if a := b.waits("strict/mine"); !strings.Contains(a.Text, "You are number 2 in the queue.") {
				t.Errorf("at the stricter line, the page shows %s", a.Text)
			}
			c.OpenAll()
			strict.isServed("loose/mine")
		})
	}
}

const ownPage = `<!DOCTYPE html>
<html lang="{{.Lang}}" dir="{{.Text.dir}}"><title>{{.Text.heading}}</title>
{{if .Lost}}{{.Text.lost}}{{end}} {{.Number}} {{.Wait}} {{.Refresh}} {{.Paused}} {{.Script}}
`

// A custom page gets the documented fields. One that cannot be rendered is refused when the configuration is
// loaded. TestTicketSale shows one in a browser.
func TestWaitingOwnPageIsChecked(t *testing.T) {
	t.Parallel()
	c := start(t, setup{})
	for page, want := range map[string]string{
		"{{.Nonsense}}": "can't evaluate field Nonsense",
		"{{if}}":        "missing value for if",
		"":              "no such file",
		ownPage:         "",
	} {
		file := filepath.Join(t.TempDir(), "page.html")
		if page != "" {
			testcaddy.WriteFile(t, file, page)
		}
		err := c.Load("text/caddyfile", c.caddyfile(setup{site: waitingSite("file "+file, "")}))
		if page == ownPage {
			check(t, err)
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "waiting_page") {
			t.Errorf("page %.20q: %v; expected %q", page, err, want)
		}
	}
}

// Bug: with a hold of one second, the place was given up before the page could return.
func TestWaitingShortHold(t *testing.T) {
	t.Parallel()
	c, _ := busySite(t, "after 0\nhold 1s", "")
	b := newVisitor(c)
	b.waits("mine")
	for range 4 {
		if a := b.waits("mine"); a.Header.Get("Refresh") != "2" || strings.Contains(a.Text, lost) {
			t.Errorf("%v, the page shows %s", a.Header, a.Text)
		}
		time.Sleep(2300 * time.Millisecond) // as a browser does, on a slow network
	}
}

// Bug: if a queue with the page was inside another queue of the same name, every request
// ended in a panic.
func TestWaitingPageInAQueueOfTheSameName(t *testing.T) {
	t.Parallel()
	queue := func(more string) string {
		return "serialize {\npath " + testcaddy.TempDir(t) + "\nprefix a_\n" + more + "\n}\n"
	}
	c := start(t, setup{site: queue("") + "route {\n" + queue("waiting_page") + "reverse_proxy {$UPSTREAM}\n}"})
	c.get("/mine").Want(t, http.StatusOK)
	newVisitor(c).opens("mine").Want(t, http.StatusOK)
}
