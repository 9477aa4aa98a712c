//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Requests that come to two processes in turn are served in the order of their arrival.
func TestServedInOrder(t *testing.T) {
	t.Parallel()
	const requests = 100
	one := startQueue(t, "timeout 10m") // a busy machine may need long until half of them wait
	processes := []*caddy{one, one.another()}
	// The first holds the queue, so that many wait when it moves.
	answers, names := []<-chan testcaddy.Answer{one.holder(t)}, []string{"holder"}
	for i := range requests {
		if i == requests/2 {
			one.Open("holder")
		}
		name := fmt.Sprintf("request%d", i)
		names, answers = append(names, name), append(answers, arrive(t, processes[i%2], name))
	}
	one.wantServed(answers...)
	one.WantOrder(names...)
	one.WantAlone()
	one.WantTokensGrow()
}

// arrive sends a request, and returns once it has a ticket. On a busy machine, a request
// that is sent 10 ms later can still be accepted earlier.
func arrive(t *testing.T, c *caddy, name string) <-chan testcaddy.Answer {
	t.Helper()
	port := make(chan int, 1)
	trace := &httptrace.ClientTrace{GotConn: func(conn httptrace.GotConnInfo) {
		port <- conn.Conn.LocalAddr().(*net.TCPAddr).Port
	}}
	answer := inBackground(func() testcaddy.Answer {
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		return doContext(ctx, newClient(t, "1.1"), "GET", c.url+"/?work=1ms&name="+name, nil)
	})
	ticket := fmt.Sprintf("002%08d127.0.0.1", <-port)
	wait.Until(t, name+" has a ticket", func() bool {
		return c.Hit(name) != nil || slices.ContainsFunc(lockFiles(t, c.dir), func(file string) bool {
			return strings.HasSuffix(file, ticket)
		})
	})
	return answer
}

// wantTurns sends two requests, and fails the test unless they are in one queue. Then the
// second reaches the upstream only when the first has left it.
func (c *caddy) wantTurns(first, second string) {
	c.t.Helper()
	inside := c.getting(first + "?name=first&gate")
	c.AwaitEntry("first")
	waiting := c.getting(second + "?name=second")
	c.awaitTickets(2)
	c.WantNever("second")
	c.Open("first")
	c.wantServed(inside, waiting)
	c.WantAlone()
}
