//go:build unix

package integration_test

import (
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
			more:   "&(shared) {\n" + queue + "header X-Invoked yes\ninvoke second\n}\n&(second) {\n" + queue + "reverse_proxy {$UPSTREAM}\n}",
			site:   "invoke shared",
			status: 200, body: "served me", visits: 1,
		},
		{
			name:   "invoke in the queue",
			more:   "&(shared) {\n" + queue + "reverse_proxy {$UPSTREAM}\n}",
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

// The error routes are part of the turn: the next request enters when they have finished.
func TestTurnLastsThroughErrorRoutes(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\n}\n"
	for name, again := range map[string]string{"reentrant": queue, "not reentrant": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, site: "route {\n" + queue + "error 418\n}\n" +
				"handle_errors {\n" + again + "reverse_proxy {$UPSTREAM}\n}"})
			c.wantTurns(upstream, "/", "/")
			c.wantNoTickets()
		})
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
	if r := c.get("/?name=refused").Want(t, http.StatusInternalServerError); r.Text != "sorry: timeout" {
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

// A request that cannot be recognized as the same one ends by its timeout, and the log
// names the likely cause.
func TestWaitingForItself(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		site string
	}{
		{"proxy to itself", `
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
		{"httpInclude in the turn", `
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
			c.get("/outer.html").Want(t, http.StatusInternalServerError)
			line := c.wantRefusalLogged("timeout", "serializer_")
			for _, cause := range []string{"httpInclude", "proxy to this server"} {
				if !strings.Contains(line.Text("hint"), cause) {
					t.Errorf("the log does not name the likely cause: %v", line)
				}
			}
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
