//go:build unix

package integration_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var (
	edgesFor  = flag.Duration("edges", 10*time.Second, "how long TestEdges runs")
	edgesSeed = flag.Uint64("edges.seed", 0, "the seed of the only case of TestEdges; 0 makes cases at random")
)

// Random configurations of nested queues, error routes, rewrites and named routes meet
// random clients, which hang up, stall and break off their bodies. The upstream must
// never see two requests together that must be alone, nor a request that was refused. No
// ticket may remain, and every client that reads gets an answer.
func TestEdges(t *testing.T) {
	t.Parallel()
	for i := range 3 { // at the same time: most of it is waiting
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newEdgeBench(t)
			for end := time.Now().Add(*edgesFor); time.Now().Before(end) && !t.Failed(); {
				c := generateEdges(cmp.Or(*edgesSeed, rand.Uint64N(1<<32)), false)
				if found, err := b.run(c); err != nil || len(found) > 0 {
					t.Errorf("%v%v\n%s", err, found, c)
				}
			}
			t.Logf("%d cases", b.cases)
		})
	}
}

// Without queues, the cases must fail. Otherwise, the test above would prove nothing.
func TestEdgesWithoutQueues(t *testing.T) {
	t.Parallel()
	b := newEdgeBench(t)
	for seed := range uint64(10) {
		found, err := b.run(generateEdges(1+seed, true))
		check(t, err)
		if strings.Contains(fmt.Sprint(found), "two inside: ") {
			return
		}
	}
	t.Error("10 cases without queues, and never two inside")
}

// edgeBench runs cases, one after the other, with Caddy processes that it keeps.
type edgeBench struct {
	t        testing.TB
	upstream *edgeUpstream
	caddies  []*caddy
	root     string // of the lock directories
	cases    int
}

func newEdgeBench(t testing.TB) *edgeBench {
	return &edgeBench{t: t, upstream: newEdgeUpstream(t), root: testcaddy.TempDir(t)}
}

// load brings a case's configuration into its processes.
func (b *edgeBench) load(c *edgeCase, dir string, round int) error {
	for len(b.caddies) < c.Processes {
		env := map[string]string{"UPSTREAM": b.upstream.addr}
		b.caddies = append(b.caddies, start(b.t, setup{site: "respond idle", env: env}))
	}
	for _, process := range b.caddies[:c.Processes] {
		text := c.caddyfile(dir, round)
		if err := process.Load("text/caddyfile", text); err != nil {
			return fmt.Errorf("loading the configuration: %w\n%s", err, text)
		}
		process.awaitOneListener()
	}
	return nil
}

// run runs a case and returns the promises that were broken.
func (b *edgeBench) run(c *edgeCase) ([]string, error) {
	b.cases++
	dir := filepath.Join(b.root, fmt.Sprint(b.cases))
	if err := errors.Join(os.Mkdir(dir, 0o755), b.load(c, dir, 0)); err != nil {
		return nil, err
	}
	h := &edgeHistory{c: c, answers: make(map[string]*edgeAnswer)}
	stalled := testprocess.LongestStall()
	reloaded := make(chan error, 1)
	go func() {
		var err error
		if c.Reload > 0 {
			time.Sleep(ms(c.Reload))
			err = b.load(c, dir, 1)
		}
		reloaded <- err
	}()
	answers := make([]*edgeAnswer, len(c.Clients))
	var all sync.WaitGroup
	for i, client := range c.Clients {
		addr := b.caddies[client.Process%c.Processes].host()
		all.Go(func() { answers[i] = client.run(fmt.Sprintf("r%d", i), addr, b.upstream) })
	}
	all.Wait()
	for _, a := range answers {
		h.answers[a.request] = a
	}
	idle := wait.Poll(wait.Patience, b.upstream.idle)
	empty := wait.Poll(longestTimeout*2/3, func() bool { return len(b.tickets(c, dir))+len(lockFiles(b.t, dir)) == 0 })
	idle = wait.Poll(wait.Patience, b.upstream.idle) && idle // a request may have entered late, and its hit is being noted
	if err := <-reloaded; err != nil || !idle {
		return nil, errors.Join(err, fmt.Errorf("the upstream works no more: %t", idle))
	}
	h.hits = b.upstream.take()
	h.late = 5 * stalled() // of several processes, one after the other
	h.judge()
	if !empty {
		h.violated("left behind", "%v and %v, though all work has ended", b.tickets(c, dir), lockFiles(b.t, dir))
		return h.found, nil
	}
	for _, process := range b.caddies[:c.Processes] {
		for _, path := range []string{"/a", "/b", "/c"} { // for which the queues are free
			before := process.timesStricter()
			passes := func() bool { // or it had passed, and then came to a stricter line
				r := process.get(path)
				return r.Err == nil && (r.Header.Get("Retry-After") == "" || process.timesStricter() > before+1)
			}
			if !wait.Poll(wait.Patience, passes) { // a busy machine may take longer than a short timeout
				h.violated("stuck", "new requests for %s do not pass", path)
			}
		}
	}
	b.upstream.take()
	return h.found, nil
}

// timesStricter counts the log entries on requests that came to a stricter line of the queue
// that they were in. There is at most one a second, which may concern earlier requests.
func (c *caddy) timesStricter() int {
	return len(c.Log.All(func(e entry) bool { return e["inside_by"] != nil }))
}

// tickets lists the tickets that the processes of a case see.
func (b *edgeBench) tickets(c *edgeCase, dir string) (tickets []serializer.TicketState) {
	for _, process := range b.caddies[:c.Processes] {
		for _, q := range process.queues() {
			if q.Path == dir { // others are of other cases
				tickets = append(tickets, q.Tickets...)
			}
		}
	}
	return tickets
}
