//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// serialized is a site behind a queue.
// answerTime is how long an answer may take after the turn was revoked.
const answerTime = 500 * time.Millisecond

// proxyUpstream is a site behind no queue.
const proxyUpstream = "reverse_proxy {$UPSTREAM}\n"

const serialized = `
	serialize {
		path {$DIR}
	}
	reverse_proxy {$UPSTREAM} {
		header_up X-Token {http.serialize.token}
	}`

func TestNoOverlap(t *testing.T) {
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: serialized, upstream: upstream, tls: true})
	const clients = 64
	client := newClient(t, "1.1")
	h2 := newClient(t, "2")

	var served atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(*loadTime)
	for i := range clients {
		client := client
		if i%2 == 1 {
			client = h2
		}
		all.Go(func() {
			for time.Now().Before(end) {
				if r := do(client, "GET", c.url, ""); r.Err != nil || r.StatusCode != http.StatusOK {
					t.Errorf("client %d: %v", i, r)
					return
				}
				served.Add(1)
			}
		})
	}
	all.Wait()
	upstream.WantAlone()
	upstream.WantTokensGrow()
	c.wantNoTickets()
	t.Logf("%d clients, %d requests served in %v", clients, served.Load(), *loadTime)
}

// Without the queue, the upstream must see overlaps. Otherwise, the test above would
// prove nothing.
func TestOverlapWithoutQueue(t *testing.T) {
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: "reverse_proxy {$UPSTREAM}", upstream: upstream})
	first := c.getting("/?name=first&gate")
	second := c.getting("/?name=second&gate")
	upstream.AwaitEntry("first")
	upstream.AwaitEntry("second")
	upstream.OpenAll()
	(<-first).Want(t, http.StatusOK)
	(<-second).Want(t, http.StatusOK)
	upstream.WantMost(2)
}

func TestServedInOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		processes int
	}{
		{"one process", 1},
		{"two processes in turn", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream, dir := testcaddy.NewUpstream(t), testcaddy.TempDir(t)
			var processes []*caddy
			for range test.processes {
				processes = append(processes, start(t, setup{site: serialized, upstream: upstream, dir: dir}))
			}
			requests := 200
			if testing.Short() {
				requests = 40
			}
			// The first holds the queue, so that many wait when it moves.
			answers := []<-chan testcaddy.Answer{processes[0].getting("/?name=holder&gate")}
			names := []string{"holder"}
			upstream.AwaitEntry("holder")
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for i := range requests {
				if i == requests/2 {
					upstream.Open("holder")
				}
				<-pace.C
				name := fmt.Sprintf("request%d", i)
				names = append(names, name)
				answers = append(answers, arrive(t, processes[i%len(processes)], upstream, name))
			}
			for _, answer := range answers {
				(<-answer).Want(t, http.StatusOK)
			}
			if got := upstream.Order(); !slices.Equal(got, names) {
				t.Errorf("served in the order %v", got)
			}
			upstream.WantAlone()
			upstream.WantTokensGrow()
		})
	}
}

// arrive sends a request, and returns once it has a ticket. On a busy machine, a request
// that is sent 10 ms later can still be accepted earlier.
func arrive(t *testing.T, c *caddy, upstream *testcaddy.Upstream, name string) <-chan testcaddy.Answer {
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
		return upstream.Visit(name) != nil || slices.ContainsFunc(lockFiles(t, c.dir), func(file string) bool {
			return strings.HasSuffix(file, ticket)
		})
	})
	return answer
}

// wantTurns sends two requests, and fails the test unless they are in one queue. Then the
// second reaches the upstream only when the first has left it.
func (c *caddy) wantTurns(upstream *testcaddy.Upstream, first, second string) {
	c.t.Helper()
	inside := c.getting(first + "?name=first&gate")
	upstream.AwaitEntry("first")
	waiting := c.getting(second + "?name=second")
	c.awaitTickets(2)
	upstream.WantNever("second")
	upstream.Open("first")
	(<-inside).Want(c.t, http.StatusOK)
	(<-waiting).Want(c.t, http.StatusOK)
	upstream.WantAlone()
}
