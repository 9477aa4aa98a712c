//go:build unix

package integration_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
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
	token, ticket := c.AwaitEntry("0").Header.Get("X-Token"), lockFiles(t, c.dir)[0]
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
	c.WantTokensGrow()
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
	for _, test := range []struct{ name, site string }{ // with QUEUE where the queue is
		{"behind", "route {\nQUEUE" + changes + "respond `TEXT`\n}"},
		{"in between", "route {\n" + changes + "QUEUE\nrespond `TEXT`\n}"},
		{"body replaced", "route {\nQUEUE" + changes + "request_body {\nset \"another {http.request.method}\"\n}\nrespond `TEXT`\n}"},
		{"body limited", "route {\nrequest_body {\nmax_size 1KiB\n}\nQUEUE" + changes + "respond `TEXT`\n}"},
		{"error route", "route {\nQUEUE" + changes + "error 418\n}\nhandle_errors {\nrespond `TEXT`\n}"},
		{"upstream after a placeholder of the body", "route {\nQUEUE" +
			"request_header X-Body {http.request.body}\nreverse_proxy {$UPSTREAM}\n}"},
		{"answer of the upstream", "route {\nQUEUE" + changes + "reverse_proxy {$UPSTREAM} {\n" +
			"@any status 2xx\nhandle_response @any {\nrespond `TEXT`\n}\n}\n}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			answer := func(queue string) testcaddy.Answer {
				site := strings.ReplaceAll(strings.ReplaceAll(test.site, "QUEUE", queue), "TEXT", text.String())
				c := start(t, setup{tls: true, site: site})
				r := do(newClient(t, "1.1"), "POST", c.url+"/first/page?q=1&name=me", "the body", "X-Client", "client", "X-Removed", "yes", "Cookie", "biscuit=ginger")
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				r.Text = strings.ReplaceAll(r.Text, strings.TrimPrefix(c.url, "https://"), "HOSTPORT")
				return r
			}
			with, without := answer(queue), answer("")
			if with.StatusCode != without.StatusCode || with.Text != without.Text {
				t.Errorf("with a queue:\n%d %s\nwithout:\n%d %s", with.StatusCode, with.Text, without.StatusCode, without.Text)
			}
			if without.StatusCode >= 500 {
				t.Errorf("the test does not work without a queue: %v", without)
			}
		})
	}
}
