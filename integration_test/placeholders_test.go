//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The upstream learns its queue, how many were ahead, how long it waited, and a
// token that grows.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	const waited = 100 * time.Millisecond
	c := start(t, setup{site: `
		serialize {
			path {$DIR}
			prefix q_{query.queue}_
		}
		reverse_proxy {$UPSTREAM} {
			header_up X-Queue {http.serialize.queue}
			header_up X-Position {http.serialize.position}
			header_up X-Wait {http.serialize.wait_ms}
			header_up X-Token {http.serialize.token}
			header_up X-Reason "none {http.serialize.reason}"
		}`})
	answers := []<-chan testcaddy.Answer{c.getting("/?queue=one&name=0&gate")}
	token, ticket := c.awaitHit("0").Header.Get("X-Token"), lockFiles(t, c.dir)[0]
	if !strings.HasPrefix(ticket, "q_one_0000"+token) {
		t.Errorf("token %s, but the lock file is %s", token, ticket)
	}
	for i := 1; i < 4; i++ {
		answers = append(answers, c.waiter(fmt.Sprint(i, "&queue=one"), i+1))
	}
	time.Sleep(waited)
	c.Open("0")
	c.wantServed(answers...)
	for i := range 4 {
		header := c.Hit(fmt.Sprint(i)).Header
		// Bug: the reason was passed on as it is written here, with its braces.
		if header.Get("X-Queue") != "q_one_" || header.Get("X-Position") != fmt.Sprint(i) || strings.TrimSpace(header.Get("X-Reason")) != "none" {
			t.Errorf("request %d: %v", i, header)
		}
		text := header.Get("X-Wait")
		got, err := strconv.ParseFloat(text, 64)
		if err != nil || !regexp.MustCompile(`^[0-9]+\.[0-9]{3}$`).MatchString(text) || i > 0 && got < float64(waited.Milliseconds()) {
			t.Errorf("request %d: waited %q ms, want %v at least", i, text, waited)
		}
	}
	c.wantTokensGrow()
}

// Bug: serialize passed on a copy of the request, and Caddy's placeholders referred to
// the original. They did not show changes by later handlers. A handler that read the body
// through a placeholder left none for the upstream.
func TestPlaceholdersOfUpstream(t *testing.T) {
	t.Parallel()
	names := []string{
		"http.request.method", "http.request.uri", "http.request.uri.path", "http.request.uri.path.file",
		"http.request.uri.path.file.base", "http.request.uri.path.file.ext", "http.request.uri.path.dir",
		"http.request.uri.path.0", "http.request.uri.query", "http.request.uri.query.q", "http.request.uri.prefixed_query",
		"http.request.uri_escaped", "http.request.host", "http.request.hostport", "http.request.host.labels.0",
		"http.request.scheme", "http.request.proto", "http.request.remote.host", "http.request.local.host",
		"http.request.header.X-Client", "http.request.header.X-Added", "http.request.header.X-Removed",
		"http.request.cookie.biscuit", "http.request.orig_method", "http.request.orig_uri", "http.request.orig_uri.path",
		"http.request.orig_uri.query", "http.request.tls.version", "http.request.tls.server_name", "http.vars.color",
		"http.request.body", "http.request.body_base64", "http.response.header.X-Response", "mapped",
	}
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name + " = {" + name + "}\n")
	}
	const (
		queue   = "serialize {\npath {$DIR}\n}\n"
		changes = `
			method PUT
			rewrite /other/page.html?q=2&r=3
			request_header X-Added yes
			request_header -X-Removed
			header X-Response {http.request.method}
			vars color green
			map {http.request.uri.path} {mapped} {
				/other/* other
				default none
			}
			`
	)
	ways := map[string]string{ // with QUEUE where the queue is
		"behind":     "route {\nQUEUE" + changes + "respond `TEXT`\n}",
		"in-between": "route {\n" + changes + "QUEUE\nrespond `TEXT`\n}",
		"replaced":   "route {\nQUEUE" + changes + "request_body {\nset \"another {http.request.method}\"\n}\nrespond `TEXT`\n}",
		"limited":    "route {\nrequest_body {\nmax_size 1KiB\n}\nQUEUE" + changes + "respond `TEXT`\n}",
		"error":      "route {\nQUEUE" + changes + "error 418\n}",
		"upstream":   "route {\nQUEUE" + "request_header X-Body {http.request.body}\nreverse_proxy {$UPSTREAM}\n}",
		"answer": "route {\nQUEUE" + changes + "reverse_proxy {$UPSTREAM} {\n" +
			"@any status 2xx\nhandle_response @any {\nrespond `TEXT`\n}\n}\n}",
	}
	site := "handle_errors {\nrespond `TEXT`\n}\n"
	for name, way := range ways {
		for prefix, line := range map[string]string{"with-": queue, "without-": ""} {
			site += fmt.Sprintf("@%[1]s header X-Way %[1]s\nhandle @%[1]s {\n%[2]s\n}\n", prefix+name, strings.ReplaceAll(way, "QUEUE", line))
		}
	}
	c := start(t, setup{tls: true, site: strings.ReplaceAll(site, "TEXT", text.String())})
	for name := range ways {
		answer := func(way string) testcaddy.Answer {
			r := do(newClient(t, "1.1"), "POST", c.url+"/first/page?q=1&name="+name, "the body",
				"X-Client", "client", "X-Removed", "yes", "Cookie", "biscuit=ginger", "X-Way", way)
			check(t, r.Err)
			return r
		}
		with, without := answer("with-"+name), answer("without-"+name)
		if with.StatusCode != without.StatusCode || with.Text != without.Text {
			t.Errorf("%s, with a queue:\n%d %s\nwithout:\n%d %s", name, with.StatusCode, with.Text, without.StatusCode, without.Text)
		}
		if without.StatusCode >= 500 || name != "upstream" && len(without.Text) < 1000 {
			t.Errorf("the test does not work without a queue: %v", without)
		}
	}
}

// Bug: session cookies and other credentials stood in the names of queues: in files, lists
// and the log beside Caddy's REDACTED, and in traces and metrics.
func TestCredentialsAppearNowhere(t *testing.T) {
	t.Parallel()
	const cookie, password = "let-me-in-4711", "Bearer another-secret-4712"
	const name = "s_9189cd69629a34ea_2cdcfe09804dca6d_" // printf %s "$value" | sha256sum | cut -c1-16
	header := []string{"Cookie", "session=" + cookie, "Authorization", password}
	eachEngine(t, func(t *testing.T, engine string) {
		c := start(t, setup{
			global: "debug\nmetrics", env: map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"},
			site: "unique_ids\nlog\ntracing\nserialize_status /queues\n" + strings.Replace(behindQueue(
				"prefix s_{cookie.session}_{header.Authorization}_\nqueue_length 1\nengine "+engine), "X-Token ", "X-Queue {http.serialize.queue}\nheader_up X-Token ", 1),
		})
		holder := c.getting("/?name=holder&gate", header...)
		c.awaitQueue(name, 1, 0)
		waiter := c.getting("/?name=waiter", header...)
		c.awaitQueue(name, 1, 1)
		c.get("/", header...).Want(t, http.StatusServiceUnavailable)
		c.pause(name, "1h")
		c.resume(name)
		seen := []string{
			c.Ask("/serialize/queues"), c.Ask("/metrics"), c.get("/queues").Want(t, http.StatusOK).Text,
			strings.Join(fileNames(t, c.dir), "\n"),
		}
		c.release(holder)
		c.wantServed(waiter)
		seen = append(seen, c.Hit("holder").Header.Get("X-Queue"))
		c.awaitEntries("handled request", 4)
		wait.Until(t, "all spans are exported", func() bool { return strings.Count(c.Log.String(), `"Name":"serialize.wait"`) >= 2 })
		seen = append(seen, c.Log.String())
		for i, text := range seen {
			if strings.Contains(text, cookie) || strings.Contains(text, "another-secret") {
				t.Errorf("a credential is in text %d:\n%s", i, text)
			}
			if inMemory := i == 3 && engine == "memory"; inMemory && text != "" {
				t.Errorf("the engine made files: %s", text)
			} else if metrics := i == 1; !metrics && !inMemory && !strings.Contains(text, name) {
				t.Errorf("text %d does not have the queue's name:\n%s", i, text)
			}
		}
		c.order("s_"+cookie+"__", "pause").Want(t, http.StatusNotFound)
	})
}

// wantTokensGrow fails the test unless the fencing tokens, in the header X-Token, grew from hit to hit.
func (c *caddy) wantTokensGrow() {
	c.t.Helper()
	var last uint64
	for _, v := range c.Hits() {
		token, err := strconv.ParseUint(v.Header.Get("X-Token"), 10, 64)
		if err != nil || token <= last {
			c.t.Errorf("hit %s has the token %q after %d", v.Name, v.Header.Get("X-Token"), last)
		}
		last = token
	}
}
