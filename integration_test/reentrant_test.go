//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A reentrant request passes. Otherwise, it would wait for itself until the timeout.
func TestReentrant(t *testing.T) {
	t.Parallel()
	const queue = `serialize {
		path {$DIR}
		timeout 5s
	}
	`
	tests := []struct {
		name   string
		more   string
		site   string
		status int
		body   string
		visits int // of the upstream
	}{
		{
			name:   "nested blocks",
			site:   queue + "route {\n" + queue + "handle {\n" + queue + "reverse_proxy {$UPSTREAM}\n}\n}",
			status: 200, body: "served me", visits: 1,
		},
		{
			name:   "rewrite",
			site:   queue + "route /a {\nrewrite /b?name=me\nroute /b {\n" + queue + "reverse_proxy {$UPSTREAM}\n}\n}",
			status: 200, body: "served me", visits: 1,
		},
		{
			name:   "invoke",
			more:   "&(shared) {\nroute {\n" + queue + "header X-Invoked yes\ninvoke second\n}\n}\n&(second) {\nroute {\n" + queue + "reverse_proxy {$UPSTREAM}\n}\n}",
			site:   "invoke shared",
			status: 200, body: "served me", visits: 1,
		},
		{
			name:   "invoke in the queue",
			more:   "&(shared) {\nroute {\n" + queue + "reverse_proxy {$UPSTREAM}\n}\n}",
			site:   queue + "invoke shared",
			status: 200, body: "served me", visits: 1,
		},
		{
			name:   "error behind the queue",
			site:   "route {\n" + queue + "error 418\n}\nhandle_errors {\n" + queue + "reverse_proxy {$UPSTREAM}\n}",
			status: 200, body: "served me", visits: 1,
		},
		{
			name: "error of an error route",
			site: "route {\n" + queue + "error 418\n}\nhandle_errors 418 {\n" + queue +
				"respond \"still {http.serialize.queue}\" 418\n}",
			status: 418, body: "still serializer_",
		},
		{
			name: "answer of the upstream",
			site: queue + "reverse_proxy {$UPSTREAM} {\n@ok status 200\nhandle_response @ok {\n" + queue +
				"respond again 203\n}\n}",
			status: 203, body: "again", visits: 1,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, more: test.more, site: test.site})
			for range 2 { // and its turn has ended for the next one
				r := c.get("/a?name=me").Want(t, test.status)
				if r.Text != test.body {
					t.Errorf("answered %q, want %q", r.Text, test.body)
				}
			}
			if visits := len(upstream.Order()); visits != 2*test.visits {
				t.Errorf("the upstream saw %d requests, want %d", visits, 2*test.visits)
			}
			c.wantNoTickets()
		})
	}
}

// Error routes come after the turn. A queue there is entered with a ticket of its own.
func TestErrorRoutesComeAfterTheTurn(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\n}\n"
	site := func(upstream *testcaddy.Upstream, again string) setup {
		return setup{upstream: upstream, site: "route {\n" + queue + "error 418\n}\n" +
			"handle_errors {\n" + again + "reverse_proxy {$UPSTREAM}\n}"}
	}
	t.Run("with a queue", func(t *testing.T) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, site(upstream, queue))
		c.wantTurns(upstream, "/", "/")
		c.wantNoTickets()
	})
	t.Run("without", func(t *testing.T) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, site(upstream, ""))
		first, second := c.getting("/?name=first&gate"), c.getting("/?name=second&gate")
		upstream.AwaitEntry("first")
		upstream.AwaitEntry("second")
		c.wantNoTickets()
		upstream.OpenAll()
		(<-first).Want(t, http.StatusOK)
		(<-second).Want(t, http.StatusOK)
	})
}

// A line that is stricter than the turn that the request holds would let two in: it
// refuses the request, and the log names both lines.
func TestStricterInnerLine(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\n%s\n}\n"
	for _, test := range []struct {
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
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, site: "route {\n" + fmt.Sprintf(queue, test.outer) +
				"route {\n" + fmt.Sprintf(queue, test.inner) + "reverse_proxy {$UPSTREAM}\n}\n}"})
			c.get("/?name=me").Want(t, test.status)
			c.wantNoTickets()
			if test.status == 200 {
				return
			}
			upstream.WantNever("me")
			line := c.awaitEntry("both lines", func(e entry) bool { return e["inside_by"] != nil })
			if line["inside_by"] == line["comes_to"] {
				t.Errorf("the log does not tell the lines apart: %v", line)
			}
		})
	}
}

// Every line that matches applies, one inside the other. After `off`, a request passes all
// lines that follow.
func TestLinesAreCaddys(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			prefix all_
		}
		serialize /a* {
			path {$DIR}
			prefix a_
		}
		serialize /a/off off
		reverse_proxy {$UPSTREAM}`})
	for path, queues := range map[string][]string{"/": {"all_"}, "/a": {"a_", "all_"}, "/a/off": nil} {
		name := fmt.Sprintf("r%d", len(queues))
		answer := c.getting(path + "?gate&name=" + name)
		upstream.AwaitEntry(name)
		files := lockFiles(t, c.dir)
		if len(files) != len(queues) {
			t.Errorf("%s is in %q, want %q", path, files, queues)
		}
		for i, queue := range queues {
			if !strings.HasPrefix(files[i], queue+"0000") {
				t.Errorf("%s is in %q, want %q", path, files, queues)
			}
		}
		upstream.Open(name)
		(<-answer).Want(t, http.StatusOK)
	}
}

// Error routes answer a refused request outside the queue that refused it.
func TestRefusedThenErrorRoutes(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			timeout 200ms
		}
		reverse_proxy {$UPSTREAM}
		handle_errors {
			respond "sorry: {http.serialize.reason}"
		}`})
	holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/?name=holder&gate") })
	if r := c.get("/?name=refused").Want(t, http.StatusServiceUnavailable); r.Text != "sorry: timeout" {
		t.Errorf("answered %q", r.Text)
	}
	release(t, upstream, holder)
	c.wantNoTickets()
}

// A queue within a queue has its own ticket and placeholders. Bug: the placeholders were
// those of the outer queue.
func TestQueueWithinQueue(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			prefix outer_
		}
		route {
			serialize {
				path {$DIR}
				prefix inner_
			}
			reverse_proxy {$UPSTREAM} {
				header_up X-Queue {http.serialize.queue}
			}
		}`})
	answer := c.getting("/?name=me&gate")
	if got := upstream.AwaitEntry("me").Header.Get("X-Queue"); got != "inner_" {
		t.Errorf("{http.serialize.queue} is %q, want inner_", got)
	}
	if files := lockFiles(t, c.dir); len(files) != 2 {
		t.Errorf("lock files %v, want one of each queue", files)
	}
	upstream.Open("me")
	(<-answer).Want(t, http.StatusOK)
	c.wantNoTickets()
}

// A request that cannot be recognized as the same one ends by its timeout.
func TestWaitingForItself(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		site   string
	}{
		{"proxy to itself", http.StatusServiceUnavailable, `
			serialize {
				path {$DIR}
				timeout 2s
			}
			handle /outer.html {
				rewrite /inner
				reverse_proxy 127.0.0.1:{$PORT} {
					header_up Host 127.0.0.1:{$PORT}
				}
			}
			respond inner`},
		{"httpInclude in the turn", http.StatusInternalServerError, `
			root {$HOME}
			route {
				serialize {
					path {$DIR}
					timeout 2s
				}
				templates
				respond /inner inner
				file_server
			}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: test.site})
			testcaddy.WriteFile(t, filepath.Join(c.home, "outer.html"), `{{httpInclude "/inner"}}`)
			c.get("/outer.html").Want(t, test.status)
			c.wantRefusalLogged("timeout", "serializer_")
			c.wantNoTickets()
		})
	}
}

// In the default order, templates run after the turn: what they include may be behind the
// same queue.
func TestIncludeAfterTurn(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: `
		root {$HOME}
		serialize {
			path {$DIR}
			timeout 5s
		}
		templates
		respond /inner inner
		file_server`})
	testcaddy.WriteFile(t, filepath.Join(c.home, "outer.html"), `outer {{httpInclude "/inner"}}`)
	if r := c.get("/outer.html").Want(t, http.StatusOK); r.Text != "outer inner" {
		t.Errorf("answered %q", r.Text)
	}
	c.wantNoTickets()
}
