//go:build unix

package integration_test

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The methods of skip_methods pass. The memory engine does not touch the directory.
func TestSkipMethods(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		c := startQueue(t, "skip_methods get,Head OPTIONS\nengine "+engine)
		holder := c.send("POST", "name=holder&gate")
		c.AwaitEntry("holder")
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			c.wantServed(c.send(method, "name="+method))
		}
		answers := []<-chan testcaddy.Answer{holder}
		for i, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			answers = append(answers, c.send(method, "name="+method))
			c.awaitWaiting(i + 1)
			c.WantNever(method)
		}
		if names := fileNames(t, c.dir); engine == "memory" && len(names) > 0 {
			t.Errorf("the engine made files: %v", names)
		}
		c.Open("holder")
		c.wantServed(answers...)
		c.WantOrder("holder", "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")
	})
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
