//go:build unix

package integration_test

import (
	"cmp"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A reentrant request passes. Otherwise, it would wait for itself until the timeout.
func TestReentrant(t *testing.T) {
	t.Parallel()
	const (
		queue = "serialize {\npath {$DIR}\ntimeout 5s\n}\n"
		proxy = queue + "reverse_proxy {$UPSTREAM}\n"
	)
	for name, test := range map[string]struct {
		site, more string
		status     int
		body       string
	}{
		"nested blocks": {site: queue + "route {\n" + queue + "handle {\n" + proxy + "}\n}"},
		"rewrite":       {site: queue + "route /a {\nrewrite /b?name=me\nroute /b {\n" + proxy + "}\n}"},
		"invoke": {site: "invoke shared",
			more: "&(shared) {\nroute {\n" + queue + "header X-Invoked yes\ninvoke second\n}\n}\n&(second) {\nroute {\n" + proxy + "}\n}"},
		"invoke in the queue":    {site: queue + "invoke shared", more: "&(shared) {\nroute {\n" + proxy + "}\n}"},
		"error behind the queue": {site: "route {\n" + queue + "error 418\n}\nhandle_errors {\n" + proxy + "}"},
		"error of an error route": {site: "route {\n" + queue + "error 418\n}\nhandle_errors 418 {\n" + queue +
			"respond \"still {http.serialize.queue}\" 418\n}", status: 418, body: "still serializer_"},
		"answer of the upstream": {site: queue + "reverse_proxy {$UPSTREAM} {\n@ok status 200\nhandle_response @ok {\n" + queue +
			"respond again 203\n}\n}", status: 203, body: "again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{more: test.more, site: test.site})
			for range 2 { // and its turn has ended for the next one
				r := c.get("/a?name=me").Want(t, cmp.Or(test.status, http.StatusOK))
				if want := cmp.Or(test.body, "served me"); r.Text != want {
					t.Errorf("answered %q, want %q", r.Text, want)
				}
			}
			if test.status == 0 {
				c.wantOrder("me", "me")
			}
			c.awaitTickets(0)
		})
	}
}

// Error routes come after the turn. A queue there is entered with a ticket of its own; without
// one, the upstream sees overlaps, or the other tests would prove nothing.
func TestErrorRoutesComeAfterTheTurn(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\n}\n"
	with := start(t, setup{site: "route {\n" + queue + "error 418\n}\nhandle_errors {\n" + serialized + "\n}"})
	holder, waiter := with.holder(t), with.waiter("waiter", 2)
	with.WantNever("waiter")
	with.release(holder)
	with.wantServed(waiter)
	with.awaitTickets(0)

	without := start(t, setup{site: "route {\n" + queue + "error 418\n}\nhandle_errors {\nreverse_proxy {$UPSTREAM}\n}"})
	first, second := without.getting("/?name=first&gate"), without.getting("/?name=second&gate")
	without.awaitHit("first")
	without.awaitHit("second")
	without.awaitTickets(0)
	without.OpenAll()
	without.wantServed(first, second)
}

// A line that is stricter than the turn that the request holds would let two in: it
// refuses the request, and the log names both lines. Bug: an error route let it in then. Bug:
// it got neither Retry-After nor the error_response.
func TestStricterInnerLine(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\n%s\n}\n"
	tests := []struct {
		name, outer, inner string
		status             int
	}{
		{"the same", "concurrency 4", "concurrency 4", 200},
		{"wider", "concurrency 2", "concurrency 4", 200},
		{"alone, then wider", "", "concurrency 4", 200},
		{"narrower", "concurrency 4", "concurrency 2", 503},
		{"alone", "concurrency 4", "", 503},
		{"a reader, then a writer", "shared_methods GET", "", 503},
		{"a writer, then a reader", "", "shared_methods GET", 200},
		{"readers", "shared_methods GET", "shared_methods GET HEAD", 200},
		{"fewer readers", "shared_methods GET\nconcurrency 4", "shared_methods GET\nconcurrency 2", 503},
	}
	var site, errors strings.Builder
	for i, test := range tests {
		prefix := fmt.Sprintf("prefix q%d_\n", i)
		if i%2 == 0 { // the others come to the error routes
			prefix += "error_response text/plain busy\n"
		}
		outer, inner := fmt.Sprintf(queue, prefix+test.outer), fmt.Sprintf(queue, prefix+test.inner)
		fmt.Fprintf(&site, "handle /%d {\nroute {\n%sroute {\n%sreverse_proxy {$UPSTREAM}\n}\n}\n}\n", i, outer, inner)
		fmt.Fprintf(&errors, "handle /%d {\nroute {\n%sreverse_proxy {$UPSTREAM}\n}\n}\n", i, inner)
	}
	c := start(t, setup{site: site.String() + "handle_errors {\n" + errors.String() + "}"})
	for i, test := range tests {
		r := c.get(fmt.Sprintf("/%d?name=%d", i, i))
		if r.StatusCode != test.status || (r.Text == "busy") != (test.status == 503 && i%2 == 0) {
			t.Errorf("%s: %v, want %d", test.name, r, test.status)
		}
		c.awaitTickets(0)
		if test.status == 200 {
			continue
		}
		wantRetryAfter(t, r)
		c.WantNever(fmt.Sprint(i))
		line := c.awaitEntry("both lines", func(e entry) bool { return e["inside_by"] != nil && e["queue"] == fmt.Sprintf("q%d_", i) })
		if line["inside_by"] == line["comes_to"] {
			t.Errorf("the log does not tell the lines apart: %v", line)
		}
	}
}

// Every line that matches applies, one inside the other, with a ticket of its own. After
// `off`, a request passes all lines that follow. Bug: the placeholders were those of the
// outer queue.
func TestLinesAreCaddys(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: "serialize {\npath {$DIR}\nprefix all_\n}\nserialize /a* {\npath {$DIR}\nprefix a_\n}\nserialize /a/off off\n" +
		"reverse_proxy {$UPSTREAM} {\nheader_up X-Queue {http.serialize.queue}\n}"})
	for path, queues := range map[string][]string{"/": {"all_"}, "/a": {"a_", "all_"}, "/a/off": nil} {
		name := fmt.Sprintf("r%d", len(queues))
		answer := c.getting(path + "?gate&name=" + name)
		inside := c.awaitHit(name).Header.Get("X-Queue")
		var found []string
		for _, file := range lockFiles(t, c.dir) {
			prefix, _, _ := strings.Cut(file, "0000")
			found = append(found, prefix)
		}
		if !slices.Equal(found, queues) || len(queues) > 0 && inside != "all_" {
			t.Errorf("%s is in %q, and {http.serialize.queue} is %q; want %q", path, found, inside, queues)
		}
		c.Open(name)
		c.wantServed(answer)
	}
}

// A request that cannot be recognized as the same one ends by its timeout. In the default
// order, templates run after the turn: what they include may be behind the same queue.
func TestWaitingForItself(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\ntimeout 2s\n}\n"
	for name, test := range map[string]struct {
		site   string
		status int
	}{
		"proxy to itself": {queue + "handle /outer.html {\nrewrite /inner\nreverse_proxy 127.0.0.1:{$PORT} {\n" +
			"header_up Host 127.0.0.1:{$PORT}\n}\n}\nrespond inner", 503},
		"httpInclude in the turn": {"root {$HOME}\nroute {\n" + queue + "templates\nrespond /inner inner\nfile_server\n}", 500},
		"httpInclude after it":    {"root {$HOME}\n" + queue + "templates\nrespond /inner inner\nfile_server", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: test.site})
			testcaddy.WriteFile(t, filepath.Join(c.home, "outer.html"), `outer {{httpInclude "/inner"}}`)
			r := c.get("/outer.html").Want(t, test.status)
			if test.status != 200 {
				c.wantRefusalLogged("timeout", "serializer_")
			} else if r.Text != "outer inner" {
				t.Errorf("answered %q", r.Text)
			}
			c.awaitTickets(0)
		})
	}
}
