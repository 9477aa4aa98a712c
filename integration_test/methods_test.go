//go:build unix

package integration_test

import (
	"net/http"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// engines are the engines that every test of the rules of admission runs with.
var engines = []string{"file", "memory"}

// rules starts a site with an engine and further options.
func rules(t *testing.T, engine, options string) (*caddy, *testcaddy.Upstream) {
	t.Helper()
	upstream := testcaddy.NewUpstream(t)
	return start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			engine ` + engine + `
			` + options + `
		}
		reverse_proxy {$UPSTREAM} {
			header_up X-Position {http.serialize.position}
		}`}), upstream
}

// send makes a request in the background.
func (c *caddy) send(method, query string) <-chan testcaddy.Answer {
	return inBackground(func() testcaddy.Answer { return do(newClient(c.t, "1.1"), method, c.url+"/?"+query, "") })
}

func TestSkipMethods(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c, upstream := rules(t, engine, "skip_methods get,Head OPTIONS")
			holder := c.send("POST", "name=holder&gate")
			upstream.AwaitEntry("holder")
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				(<-c.send(method, "name="+method)).Want(t, http.StatusOK)
			}
			var waiters []<-chan testcaddy.Answer
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
				waiters = append(waiters, c.send(method, "name="+method))
				c.awaitWaiting(len(waiters))
				upstream.WantNever(method)
			}
			upstream.Open("holder")
			for _, answer := range append(waiters, holder) {
				(<-answer).Want(t, http.StatusOK)
			}
			upstream.WantOrder("holder", "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")
		})
	}
}

// awaitWaiting waits until the engine says that so many wait.
func (c *caddy) awaitWaiting(n int) {
	c.t.Helper()
	var state string
	if !wait.Poll(wait.Patience, func() bool {
		state = c.Ask("/serialize/queues")
		var queues []struct{ Waiting int }
		waiting := 0
		decodeInto(c.t, state, &queues)
		for _, q := range queues {
			waiting += q.Waiting
		}
		return waiting == n
	}) {
		c.t.Fatalf("%d wait; expected otherwise: %s", n, state)
	}
}

// The memory engine does not touch the directory.
func TestMemoryEngineHasNoFiles(t *testing.T) {
	t.Parallel()
	c, upstream := rules(t, "memory", "")
	holder := c.send("GET", "name=holder&gate")
	upstream.AwaitEntry("holder")
	second := c.send("GET", "name=second")
	c.awaitWaiting(1)
	if names := fileNames(t, c.dir); len(names) > 0 {
		t.Errorf("files %v", names)
	}
	release(t, upstream, holder)
	(<-second).Want(t, http.StatusOK)
	if got := upstream.Visit("second").Header.Get("X-Position"); got != "1" {
		t.Errorf("position %q, want 1", got)
	}
	upstream.WantAlone()
}
