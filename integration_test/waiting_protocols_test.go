//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: over HTTP/3, where a request does not say that it has no body, nobody got the page.
//
// Over TLS the cookie is one that no other site can set, in all versions of HTTP. The
// same applies behind a trusted proxy that ends TLS.
func TestWaitingOverTLS(t *testing.T) {
	t.Parallel()
	allVersions(t, func(t *testing.T, client *http.Client) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{upstream: upstream, tls: true, site: waitingProxySite})
		holder := c.getting("/?name=holder&gate")
		upstream.AwaitEntry("holder")
		navigate := append(slices.Clone(navigation), "Accept-Language", "de")
		page := do(client, "GET", c.url+"/?name=mine", "", navigate...).Want(t, http.StatusServiceUnavailable)
		cookie := page.Header.Get("Set-Cookie")
		if want := `^__Host-orderly_waiting_[0-9a-f]{12}_[0-9a-f]{6}=[\w-]{22}\.\d+; Path=/; Max-Age=87000; HttpOnly; Secure; SameSite=Lax$`; !regexp.MustCompile(want).MatchString(cookie) {
			t.Errorf("cookie %s; expected %s", cookie, want)
		}
		name, _, _ := strings.Cut(cookie, ";")
		events := liveEvents(t, client, c.url+"/?name=mine", "Cookie", name, "Accept-Language", "de")
		if got := <-events + <-events; !strings.HasPrefix(got, "place{") || !strings.Contains(got, "Sie sind als Nächstes dran.") {
			t.Errorf("events %s", got)
		}
		release(t, upstream, holder)
		for event := range events {
			if event == "turn" {
				break
			}
		}
		served := do(client, "GET", c.url+"/?name=mine", "", append(navigate, "Cookie", name)...).Want(t, http.StatusOK)
		if deleted := served.Header.Get("Set-Cookie"); !strings.HasPrefix(deleted, strings.SplitN(name, "=", 2)[0]+"=;") || !strings.Contains(deleted, "Max-Age=0") || !strings.Contains(deleted, "Secure") {
			t.Errorf("cookie %s; expected that it is taken away", deleted)
		}
		upstream.WantOrder("holder", "mine")
	})
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

// liveEvents opens the stream of the page's script, and returns the names and data of
// its events.
func liveEvents(t *testing.T, client *http.Client, url string, header ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	testcaddy.SetHeader(r, append(header, "Orderly-Waiting", "live"))
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if _, text, ok := strings.Cut(lines.Text(), ": "); ok {
				events <- text
			}
		}
	}()
	return events
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
		if !strings.Contains(page.Text, paused) {
			t.Errorf("the page does not say that the queue is paused: %s", page.Text)
		}
		cookie, _, _ := strings.Cut(page.Header.Get("Set-Cookie"), ";")
		events := liveEvents(t, newClient(t, "1.1"), c.url+"/?name=mine", "Cookie", cookie)
		if got := <-events + <-events; !strings.Contains(got, paused) {
			t.Errorf("events %s", got)
		}
		c.resume("a_")
		for event := range events {
			if event == "turn" {
				break
			}
		}
		c.get("/?name=mine", append(slices.Clone(navigation), "Cookie", cookie)...).Want(t, http.StatusOK)
		upstream.WantOrder("mine")
	})
}

// If another browser takes a browser's place, the page's script learns so at once, and
// gets the answer that others get.
func TestWaitingSuperseded(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: strings.Replace(waitingProxySite, "prefix a_", "prefix a_\nqueue_length 1\nwhen_full drop_oldest", 1) +
		"\nhandle_errors {\nrespond {http.serialize.reason} 429\n}"})
	holder := c.getting("/?name=holder&gate")
	upstream.AwaitEntry("holder")
	page := c.get("/?name=mine", navigation...).Want(t, http.StatusServiceUnavailable)
	cookie, _, _ := strings.Cut(page.Header.Get("Set-Cookie"), ";")
	events := liveEvents(t, newClient(t, "1.1"), c.url+"/?name=mine", "Cookie", cookie)
	<-events
	latest := c.getting("/?name=latest")
	for event := range events {
		if event == "turn" { // reload
			break
		}
	}
	refused := c.get("/?name=mine", append(slices.Clone(navigation), "Cookie", cookie)...).Want(t, http.StatusTooManyRequests)
	if refused.Text != "superseded" || !strings.Contains(refused.Header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("answer %v", refused)
	}
	release(t, upstream, holder)
	(<-latest).Want(t, http.StatusOK)
	upstream.WantOrder("holder", "latest")
}

// Queues whose names come from a placeholder have separate cookies: a browser has a place
// in each.
func TestWaitingInKeyedQueues(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, global: "metrics", site: strings.Replace(waitingProxySite, "prefix a_", "prefix shop_{query.shop}_", 1)})
	var cookies []string
	for _, shop := range []string{"one", "two"} {
		holder := c.getting("/?shop=" + shop + "&name=holder-" + shop + "&gate")
		upstream.AwaitEntry("holder-" + shop)
		page := c.get("/?shop="+shop+"&name=mine", append(slices.Clone(navigation), "Cookie", strings.Join(cookies, "; "))...)
		cookie, _, _ := strings.Cut(page.Want(t, http.StatusServiceUnavailable).Header.Get("Set-Cookie"), ";")
		if !strings.Contains(page.Text, "You are next.") || strings.Contains(page.Text, lost) {
			t.Errorf("the page of %s shows %s", shop, page.Text)
		}
		cookies = append(cookies, cookie)
		defer func() { (<-holder).Want(t, http.StatusOK) }()
	}
	for _, shop := range []string{"two", "one"} {
		c.awaitQueue("shop_"+shop+"_", 1, 1)
		upstream.Open("holder-" + shop)
		c.awaitQueue("shop_"+shop+"_", 1, 0) // its turn waits
		answer := c.get("/?shop="+shop+"&name=mine-"+shop, append(slices.Clone(navigation), "Cookie", strings.Join(cookies, "; "))...)
		answer.Want(t, http.StatusOK)
		if names := answer.Header.Values("Set-Cookie"); len(names) != 1 {
			t.Errorf("cookies %v; expected that of one queue", names)
		}
	}
	upstream.WantOrder("holder-one", "holder-two", "mine-two", "mine-one")
}
