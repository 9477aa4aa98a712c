//go:build unix

package integration_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Bug: over HTTP/3, where a request does not say that it has no body, nobody got the page.
//
// Over TLS the cookie is one that no other site can set, in all versions of HTTP.
func TestWaitingOverTLS(t *testing.T) {
	t.Parallel()
	allVersions(t, func(t *testing.T, client *http.Client) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{upstream: upstream, tls: true, site: waitingProxySite})
		holder := c.getting("/?name=holder&gate")
		upstream.AwaitEntry("holder")
		page := do(client, "GET", c.url+"/?name=mine", "", navigation...).Want(t, http.StatusServiceUnavailable)
		cookie := page.Header.Get("Set-Cookie")
		if want := `^__Host-orderly_waiting_[0-9a-f]{12}=[A-Z2-7]{26}\.[\w-]{43}; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax$`; !regexp.MustCompile(want).MatchString(cookie) {
			t.Errorf("cookie %s; expected %s", cookie, want)
		}
		ask := asking(client, c.url+"/?name=mine", page)
		if a := ask(t); !strings.Contains(a.Text, `"number":1,`) {
			t.Errorf("answer %s", a.Text)
		}
		release(t, upstream, holder)
		awaitTurn(t, ask)
		do(client, "GET", c.url+"/?name=mine", "", withCookie(page)...).Want(t, http.StatusOK)
		upstream.WantOrder("holder", "mine")
	})
}

// withCookie is the header of a browser that has got a page.
func withCookie(page testcaddy.Answer) []string {
	cookie, _, _ := strings.Cut(page.Header.Get("Set-Cookie"), ";")
	return append(slices.Clone(navigation), "Cookie", cookie)
}

// asking is what the script of a page does.
func asking(client *http.Client, url string, page testcaddy.Answer) func(t *testing.T) testcaddy.Answer {
	return func(t *testing.T) testcaddy.Answer {
		t.Helper()
		return do(client, "GET", url, "", append(withCookie(page), "Orderly-Place", "ask")...).Want(t, http.StatusOK)
	}
}

// awaitTurn waits until a page is to reload.
func awaitTurn(t *testing.T, ask func(t *testing.T) testcaddy.Answer) {
	t.Helper()
	wait.Until(t, "the page is to reload", func() bool { return ask(t).Text == `{"turn":true}` })
}

const waitingProxySite = `
	serialize {
		path {$DIR}
		prefix a_
		timeout 10m
		waiting_page {
			after 0
		}
	}
	reverse_proxy {$UPSTREAM}`

// That the browser uses TLS is believed only if a trusted proxy says so.
func TestWaitingBehindTLS(t *testing.T) {
	t.Parallel()
	for servers, secure := range map[string]bool{"trusted_proxies static 127.0.0.0/8": true, "": false} {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{upstream: upstream, site: waitingProxySite, servers: servers})
		holder := c.getting("/?name=holder&gate")
		upstream.AwaitEntry("holder")
		page := c.get("/?name=mine", append(slices.Clone(navigation), "X-Forwarded-Proto", "https", "X-Forwarded-For", "192.0.2.1")...)
		cookie := page.Want(t, http.StatusServiceUnavailable).Header.Get("Set-Cookie")
		if got := strings.HasPrefix(cookie, "__Host-") && strings.Contains(cookie, "; Secure"); got != secure {
			t.Errorf("%q: cookie %s", servers, cookie)
		}
		release(t, upstream, holder)
	}
}

// While the queue is paused, the page says so, and continues afterwards.
func TestWaitingWhilePaused(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{upstream: upstream, site: strings.Replace(waitingProxySite, "prefix a_", "prefix a_\nengine "+engine, 1)})
		c.pause("a_", "10m")
		page := c.get("/?name=mine", navigation...).Want(t, http.StatusServiceUnavailable)
		const paused = "The queue is paused. You keep your place."
		if !strings.Contains(wantPage(t, page).Text, paused) {
			t.Errorf("the page does not say that the queue is paused: %s", page.Text)
		}
		ask := asking(newClient(t, "1.1"), c.url+"/?name=mine", page)
		if a := ask(t); !strings.Contains(a.Text, `"paused":true`) {
			t.Errorf("answer %s", a.Text)
		}
		c.resume("a_")
		awaitTurn(t, ask)
		c.get("/?name=mine", withCookie(page)...).Want(t, http.StatusOK)
		upstream.WantOrder("mine")
	})
}

// Queues whose names come from a placeholder have separate cookies: a browser has a place
// in each.
func TestWaitingInKeyedQueues(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: strings.Replace(waitingProxySite, "prefix a_", "prefix shop_{query.shop}_", 1)})
	cookies := make(map[string]string)
	both := func() []string {
		return append(slices.Clone(navigation), "Cookie", strings.Join(slices.Collect(maps.Values(cookies)), "; "))
	}
	var holders []<-chan testcaddy.Answer
	for _, shop := range []string{"one", "two"} {
		holders = append(holders, c.getting("/?shop="+shop+"&name=holder-"+shop+"&gate"))
		upstream.AwaitEntry("holder-" + shop)
		page := wantPage(t, c.get("/?shop="+shop+"&name=mine", both()...))
		if !strings.Contains(page.Text, "You are next.") || strings.Contains(page.Text, lost) {
			t.Errorf("the page of %s shows %s", shop, page.Text)
		}
		cookies[shop], _, _ = strings.Cut(page.Header.Get("Set-Cookie"), ";")
	}
	for i, shop := range []string{"one", "two"} {
		c.get("/?shop="+shop+"&name=mine", both()...).Want(t, http.StatusServiceUnavailable)
		upstream.Open("holder-" + shop)
		(<-holders[i]).Want(t, http.StatusOK)
		c.awaitQueue("shop_"+shop+"_", 1, 0) // its turn waits
		c.get("/?shop="+shop+"&name=mine-"+shop, both()...).Want(t, http.StatusOK)
	}
}
