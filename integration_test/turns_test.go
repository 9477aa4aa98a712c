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
)

// serialized is a site behind a queue.
const serialized = `
	serialize {
		path {$DIR}
	}
	reverse_proxy {$BACKEND} {
		header_up X-Token {http.serialize.token}
	}`

func TestNoOverlap(t *testing.T) {
	b := newBackend(t)
	c := start(t, setup{site: serialized, backend: b, tls: true})
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
				if r := do(client, "GET", c.url, ""); r.err != nil || r.status != http.StatusOK {
					t.Errorf("client %d: %v", i, r)
					return
				}
				served.Add(1)
			}
		})
	}
	all.Wait()
	b.wantAlone(t)
	b.wantTokensGrow(t)
	c.wantNoTickets()
	t.Logf("%d clients, %d requests served in %v", clients, served.Load(), *loadTime)
}

// Without the queue, the backend must see overlaps: else the test above shows
// nothing.
func TestOverlapWithoutQueue(t *testing.T) {
	b := newBackend(t)
	c := start(t, setup{site: "reverse_proxy {$BACKEND}", backend: b})
	first := c.getting("/?name=first&gate")
	second := c.getting("/?name=second&gate")
	b.awaitEntry(t, "first")
	b.awaitEntry(t, "second")
	b.openAll()
	(<-first).want(t, http.StatusOK)
	(<-second).want(t, http.StatusOK)
	if b.most != 2 {
		t.Errorf("%d requests were in the backend at the same time, want 2", b.most)
	}
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
			b, dir := newBackend(t), tempDir(t)
			var processes []*caddy
			for range test.processes {
				processes = append(processes, start(t, setup{site: serialized, backend: b, dir: dir}))
			}
			requests := 200
			if testing.Short() {
				requests = 40
			}
			// The first holds the queue, so that many wait when it moves.
			answers := []<-chan response{processes[0].getting("/?name=holder&gate")}
			names := []string{"holder"}
			b.awaitEntry(t, "holder")
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for i := range requests {
				if i == requests/2 {
					b.open("holder")
				}
				<-pace.C
				name := fmt.Sprintf("request%d", i)
				names = append(names, name)
				answers = append(answers, arrive(t, processes[i%len(processes)], b, name))
			}
			for _, answer := range answers {
				(<-answer).want(t, http.StatusOK)
			}
			if got := b.order(); !slices.Equal(got, names) {
				t.Errorf("served in the order %v", got)
			}
			b.wantAlone(t)
			b.wantTokensGrow(t)
		})
	}
}

// arrive sends a request, and returns once it has a ticket: on a busy machine,
// what is sent 10 ms later can still be accepted earlier.
func arrive(t *testing.T, c *caddy, b *backend, name string) <-chan response {
	t.Helper()
	port := make(chan int, 1)
	trace := &httptrace.ClientTrace{GotConn: func(conn httptrace.GotConnInfo) {
		port <- conn.Conn.LocalAddr().(*net.TCPAddr).Port
	}}
	answer := inBackground(func() response {
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		return doContext(ctx, newClient(t, "1.1"), "GET", c.url+"/?work=1ms&name="+name, nil)
	})
	ticket := fmt.Sprintf("002%08d127.0.0.1", <-port)
	eventually(t, patience, name+" has a ticket", func() bool {
		return b.visit(name) != nil || slices.ContainsFunc(lockFiles(t, c.dir), func(file string) bool {
			return strings.HasSuffix(file, ticket)
		})
	})
	return answer
}

// wantTurns sends two requests and fails the test unless they are in one queue:
// the second reaches the backend only when the first has left it.
func (c *caddy) wantTurns(b *backend, first, second string) {
	c.t.Helper()
	inside := c.getting(first + "?name=first&gate")
	b.awaitEntry(c.t, "first")
	waiting := c.getting(second + "?name=second")
	c.awaitTickets(2)
	b.wantNever(c.t, "second")
	b.open("first")
	(<-inside).want(c.t, http.StatusOK)
	(<-waiting).want(c.t, http.StatusOK)
	b.wantAlone(c.t)
}
