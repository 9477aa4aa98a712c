//go:build unix

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// edgeBench runs cases, one after the other, with Caddy processes that it keeps.
type edgeBench struct {
	t         testing.TB
	upstream  *edgeUpstream
	caddies   []*caddy
	root      string // of the lock directories
	cases     int
	unguarded bool // serialize is left out: the oracle must notice
}

func newEdgeBench(t testing.TB) *edgeBench {
	return &edgeBench{t: t, upstream: newEdgeUpstream(t), root: testcaddy.TempDir(t)}
}

// load brings a case's configuration into its processes.
func (b *edgeBench) load(c *edgeCase, dir string, round int) error {
	for len(b.caddies) < c.Processes {
		b.caddies = append(b.caddies, start(b.t, setup{site: "respond idle", env: map[string]string{"UPSTREAM": b.upstream.addr}}))
	}
	for _, process := range b.caddies[:c.Processes] {
		text := c.caddyfile(dir, round, b.unguarded)
		if err := process.Load("text/caddyfile", text); err != nil {
			return fmt.Errorf("loading the configuration: %w\n%s", err, text)
		}
	}
	return nil
}

// run runs a case and returns the promises that were broken.
func (b *edgeBench) run(c *edgeCase) ([]*violation, error) {
	b.cases++
	dir := filepath.Join(b.root, fmt.Sprint(b.cases))
	if err := errors.Join(os.Mkdir(dir, 0o755), b.load(c, dir, 0)); err != nil {
		return nil, err
	}
	for _, process := range b.caddies[:c.Processes] {
		process.awaitOneListener()
	}
	h := &edgeHistory{c: c, answers: make(map[string]*edgeAnswer), tickets: make(map[edgeTicketID]*edgeTicket)}
	done := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { b.watch(h, dir, done) })
	var reloaded error
	if c.Reload > 0 {
		helpers.Go(func() {
			time.Sleep(ms(c.Reload))
			reloaded = b.load(c, dir, 1)
		})
	}
	for _, a := range b.clients(c) {
		h.answers[a.request] = a
	}
	idle := wait.Poll(wait.Patience, b.upstream.idle)
	stuck := b.empties(c, dir)
	close(done)
	helpers.Wait()
	if !idle || reloaded != nil {
		return nil, errors.Join(reloaded, fmt.Errorf("the upstream works no more: %t", idle))
	}
	h.visits = b.upstream.take()
	found := h.judge()
	if stuck == nil {
		stuck = b.fresh(c)
	}
	if stuck != nil {
		found = append(found, stuck)
	}
	b.upstream.take()
	return found, nil
}

// clients runs the clients of a case to their ends.
func (b *edgeBench) clients(c *edgeCase) []*edgeAnswer {
	answers := make([][]*edgeAnswer, len(c.Clients))
	var all sync.WaitGroup
	for i, client := range c.Clients {
		addr := strings.TrimPrefix(b.caddies[client.Process%c.Processes].url, "http://")
		all.Go(func() { answers[i] = client.run(fmt.Sprintf("r%d", i), addr, b.upstream) })
	}
	all.Wait()
	return slices.Concat(answers...)
}

// edgeQueueState is a queue of the admin API.
type edgeQueueState struct {
	Path, Prefix string
	Tickets      []struct{ Token, State, Client string }
}

func (b *edgeBench) queues(process int, dir string) (found []edgeQueueState) {
	r := b.caddies[process].API("GET", "/serialize/queues", "")
	var all []edgeQueueState
	if r.Err != nil || r.StatusCode != http.StatusOK || json.Unmarshal([]byte(r.Text), &all) != nil {
		return nil // the next attempt may succeed
	}
	return slices.DeleteFunc(all, func(q edgeQueueState) bool { return q.Path != dir })
}

// watch keeps reading the tickets, and evicts one when it is time.
func (b *edgeBench) watch(h *edgeHistory, dir string, done <-chan struct{}) {
	started := time.Now()
	for {
		select {
		case <-done:
			return
		case <-time.After(40 * time.Millisecond):
		}
		for process := range h.c.Processes {
			asked := time.Now()
			states := b.queues(process, dir)
			h.note(states, asked)
			if h.c.Evict > 0 && h.evictAt.IsZero() && time.Since(started) > ms(h.c.Evict) {
				b.evict(h, process, states)
			}
		}
	}
}

func (h *edgeHistory) note(states []edgeQueueState, asked time.Time) {
	for _, q := range states {
		for _, t := range q.Tickets {
			id := edgeTicketID{q.Prefix, t.Token}
			if h.tickets[id] == nil {
				h.tickets[id] = new(edgeTicket)
			}
			ticket := h.tickets[id]
			if addr, err := netip.ParseAddrPort(t.Client); err == nil {
				ticket.port = int(addr.Port())
			}
			if t.State == "waiting" {
				ticket.waiting = asked
				continue
			}
			if ticket.inside.IsZero() {
				ticket.inside = time.Now()
			}
			ticket.stillInside = asked
		}
	}
}

// evict evicts the first ticket of the first queue that has one.
func (b *edgeBench) evict(h *edgeHistory, process int, states []edgeQueueState) {
	i := slices.IndexFunc(states, func(q edgeQueueState) bool { return len(q.Tickets) > 0 })
	if i < 0 {
		return
	}
	q := states[i]
	h.evicted, h.evictAt = edgeTicketID{q.Prefix, q.Tickets[0].Token}, time.Now()
	b.caddies[process].API("DELETE", "/serialize/queues/"+url.PathEscape(q.Path+"/"+q.Prefix)+"/"+h.evicted.token, "")
}

// empties waits until nobody is in the queues any more, and no lock file is left.
func (b *edgeBench) empties(c *edgeCase, dir string) *violation {
	var left map[string]bool
	if wait.Poll(2*(promptly+leeway), func() bool {
		left = make(map[string]bool)
		for process := range c.Processes {
			for _, q := range b.queues(process, dir) {
				for _, t := range q.Tickets {
					left[fmt.Sprintf("token %s of %s is %s", t.Token, q.Prefix, t.State)] = true
				}
			}
		}
		for _, file := range lockFiles(b.t, dir) {
			left["lock file "+file] = true
		}
		return len(left) == 0
	}) {
		return nil
	}
	return &violation{"left behind", fmt.Sprintf("%v, though all clients and all work have ended", slices.Sorted(maps.Keys(left)))}
}

// fresh makes new requests, for which the queues are free.
func (b *edgeBench) fresh(c *edgeCase) *violation {
	client := &http.Client{Timeout: wait.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for process := range c.Processes {
		for _, path := range []string{"/a", "/b", "/c"} {
			var r testcaddy.Answer
			if !wait.Poll(wait.Patience, func() bool {
				// A busy machine may take longer than a short timeout.
				r = do(client, "GET", b.caddies[process].url+path, "")
				return r.Err == nil && r.Header.Get("Retry-After") == ""
			}) {
				return &violation{"stuck", fmt.Sprintf("a new request for %s of process %d: %v", path, process, r)}
			}
		}
	}
	return nil
}
