//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"testing"
)

// engines are the engines that every test of the rules of admission runs with.
var engines = []string{"file", "memory"}

// rules starts a site with an engine and further options.
func rules(t *testing.T, engine, options string) (*caddy, *backend) {
	t.Helper()
	b := newBackend(t)
	return start(t, setup{backend: b, site: `
		serialize {
			path {$DIR}
			engine ` + engine + `
			` + options + `
		}
		reverse_proxy {$BACKEND} {
			header_up X-Position {http.serialize.position}
		}`}), b
}

// send makes a request in the background.
func (c *caddy) send(method, query string) <-chan response {
	return inBackground(func() response { return do(newClient(c.t, "1.1"), method, c.url+"/?"+query, "") })
}

func TestSkipMethods(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c, b := rules(t, engine, "skip_methods get,Head OPTIONS")
			holder := c.send("POST", "name=holder&gate")
			b.awaitEntry(t, "holder")
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				(<-c.send(method, "name="+method)).want(t, http.StatusOK)
			}
			var waiters []<-chan response
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
				waiters = append(waiters, c.send(method, "name="+method))
				c.awaitWaiting(len(waiters))
				b.wantNever(t, method)
			}
			b.open("holder")
			for _, answer := range append(waiters, holder) {
				(<-answer).want(t, http.StatusOK)
			}
			b.wantOrder(t, "holder", "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")
		})
	}
}

// awaitWaiting waits until the engine says that so many wait.
func (c *caddy) awaitWaiting(n int) {
	c.t.Helper()
	var state string
	if err := poll(patience, func() bool {
		state = c.ask("/serialize/queues")
		var queues []struct{ Waiting int }
		waiting := 0
		decodeInto(c.t, state, &queues)
		for _, q := range queues {
			waiting += q.Waiting
		}
		return waiting == n
	}); err != nil {
		c.t.Fatalf("%d wait: not so, but %s", n, state)
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c, b := rules(t, engine, "concurrency 3")
			var answers []<-chan response
			for i := range 5 {
				answers = append(answers, c.send("GET", fmt.Sprintf("name=%d&gate", i)))
				if i < 3 {
					b.awaitEntry(t, fmt.Sprint(i))
				} else {
					c.awaitWaiting(i - 2)
				}
			}
			b.wantOrder(t, "0", "1", "2")
			b.open("1")
			b.awaitEntry(t, "3")
			b.wantNever(t, "4")
			b.openAll()
			b.open("4")
			for _, answer := range answers {
				(<-answer).want(t, http.StatusOK)
			}
			if b.most != 3 {
				t.Errorf("%d were inside at the same time, want 3", b.most)
			}
		})
	}
}

// Readers are inside side by side, writers alone, and no writer is overtaken.
func TestSharedMethods(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c, b := rules(t, engine, "shared_methods GET HEAD")
			var answers []<-chan response
			for _, name := range []string{"reader1", "reader2"} {
				answers = append(answers, c.send("GET", "gate&name="+name))
				b.awaitEntry(t, name)
			}
			answers = append(answers, c.send("POST", "name=writer&gate"))
			c.awaitWaiting(1)
			answers = append(answers, c.send("GET", "name=reader3"))
			c.awaitWaiting(2)
			b.wantOrder(t, "reader1", "reader2")
			b.open("reader1")
			b.open("reader2")
			b.awaitEntry(t, "writer")
			b.wantNever(t, "reader3")
			b.open("writer")
			for _, answer := range answers {
				(<-answer).want(t, http.StatusOK)
			}
			b.wantOrder(t, "reader1", "reader2", "writer", "reader3")
		})
	}
}

// The memory engine leaves the directory alone.
func TestMemoryEngineHasNoFiles(t *testing.T) {
	t.Parallel()
	c, b := rules(t, "memory", "")
	holder := c.send("GET", "name=holder&gate")
	b.awaitEntry(t, "holder")
	second := c.send("GET", "name=second")
	c.awaitWaiting(1)
	if names := fileNames(t, c.dir); len(names) > 0 {
		t.Errorf("files %v", names)
	}
	b.open("holder")
	(<-holder).want(t, http.StatusOK)
	(<-second).want(t, http.StatusOK)
	if got := b.visit("second").header.Get("X-Position"); got != "1" {
		t.Errorf("position %q, want 1", got)
	}
	b.wantAlone(t)
}
