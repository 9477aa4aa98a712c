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
func (b *edgeBench) load(c *edgeCase, dir string) error {
	for len(b.caddies) < c.Processes {
		b.caddies = append(b.caddies, start(b.t, setup{site: "respond idle", env: map[string]string{"UPSTREAM": b.upstream.addr}}))
	}
	for _, process := range b.caddies[:c.Processes] {
		if err := process.Load("text/caddyfile", c.caddyfile(dir, 0, b.unguarded)); err != nil {
			return fmt.Errorf("loading the configuration: %w\n%s", err, c.caddyfile(dir, 0, b.unguarded))
		}
		process.awaitOneListener()
	}
	return nil
}

// reload loads the configuration again when it is time. It takes until the
// requests of the old one have ended.
func (b *edgeBench) reload(c *edgeCase, dir string) (wait func() error) {
	var all sync.WaitGroup
	failures := make(chan error, len(c.Reloads)*c.Processes)
	for i, when := range c.Reloads {
		for _, process := range b.caddies[:c.Processes] {
			all.Go(func() {
				time.Sleep(ms(when))
				if err := process.Load("text/caddyfile", c.caddyfile(dir, i+1, b.unguarded)); err != nil {
					failures <- fmt.Errorf("reloading: %w", err)
				}
			})
		}
	}
	return func() error {
		all.Wait()
		close(failures)
		return <-failures
	}
}

// run runs a case and returns the promises that were broken.
func (b *edgeBench) run(c *edgeCase) ([]*violation, error) {
	b.cases++
	dir := filepath.Join(b.root, fmt.Sprint(b.cases))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := b.load(c, dir); err != nil {
		return nil, err
	}
	h := &edgeHistory{c: c, answers: make(map[string]*edgeAnswer), tickets: make(map[edgeTicketID]*edgeTicket)}
	watch := b.watch(h, dir)
	reload := b.reload(c, dir)
	for _, a := range b.clients(c) {
		for ; a != nil; a = a.next {
			h.answers[a.request] = a
		}
	}
	if !wait.Poll(wait.Patience, b.upstream.idle) {
		return nil, errors.New("the upstream still works")
	}
	if err := reload(); err != nil {
		return nil, err
	}
	stuck := b.empties(c, dir)
	watch()
	h.visits = b.upstream.take()
	found := h.judge()
	if stuck != nil {
		found = append(found, stuck)
	} else if fresh := b.fresh(c); fresh != nil {
		found = append(found, fresh)
	}
	b.upstream.take()
	return found, nil
}

// clients runs the clients of a case to their ends.
func (b *edgeBench) clients(c *edgeCase) []*edgeAnswer {
	answers := make([]*edgeAnswer, len(c.Clients))
	var all sync.WaitGroup
	for i, client := range c.Clients {
		name := fmt.Sprintf("r%d", i)
		plan := b.upstream.expect(name, client.Steps)
		b.upstream.expect(name+"again", client.Steps)
		all.Go(func() { answers[i] = client.run(name, b.addr(client.Process), plan) })
	}
	all.Wait()
	return answers
}

func (b *edgeBench) addr(process int) string {
	return strings.TrimPrefix(b.caddies[process].url, "http://")
}

// queueState is a queue of the admin API.
type queueState struct {
	Path, Prefix string
	Tickets      []struct{ Token, State, Client string }
}

func (b *edgeBench) queues(process int, dir string) (found []queueState) {
	r := b.caddies[process].API("GET", "/serialize/queues", "")
	var all []queueState
	if r.Err != nil || r.StatusCode != http.StatusOK || json.Unmarshal([]byte(r.Text), &all) != nil {
		return nil // the next attempt may succeed
	}
	return slices.DeleteFunc(all, func(q queueState) bool { return q.Path != dir })
}

// watch keeps reading the tickets, and evicts some, until it is stopped.
func (b *edgeBench) watch(h *edgeHistory, dir string) (stop func()) {
	done := make(chan struct{})
	started := time.Now()
	evictions := slices.Clone(h.c.Evictions)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		pace := time.NewTicker(40 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-done:
				return
			case <-pace.C:
			}
			for process := range h.c.Processes {
				asked := time.Now()
				states := b.queues(process, dir)
				h.note(states, asked)
				if len(evictions) > 0 && time.Since(started) > ms(evictions[0]) && b.evict(h, process, states) {
					evictions = evictions[1:]
				}
			}
		}
	})
	return func() {
		close(done)
		watcher.Wait()
	}
}

func (h *edgeHistory) note(states []queueState, asked time.Time) {
	for _, q := range states {
		for _, t := range q.Tickets {
			id := edgeTicketID{q.Prefix, t.Token}
			ticket := h.tickets[id]
			if ticket == nil {
				ticket = new(edgeTicket)
				h.tickets[id] = ticket
			}
			if addr, err := netip.ParseAddrPort(t.Client); err == nil {
				ticket.port = int(addr.Port())
			}
			switch {
			case t.State == "waiting":
				ticket.waiting = asked
			case ticket.inside.IsZero():
				ticket.inside, ticket.stillInside = time.Now(), asked
			default:
				ticket.stillInside = asked
			}
		}
	}
}

// evict evicts the first ticket of the first queue that has one.
func (b *edgeBench) evict(h *edgeHistory, process int, states []queueState) bool {
	for _, q := range states {
		if len(q.Tickets) == 0 {
			continue
		}
		id := edgeTicketID{q.Prefix, q.Tickets[0].Token}
		h.evictions = append(h.evictions, edgeEviction{id, time.Now()})
		b.caddies[process].API("DELETE", "/serialize/queues/"+url.PathEscape(q.Path+"/"+q.Prefix)+"/"+id.token, "")
		return true
	}
	return false
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
	for process := range c.Processes {
		for _, path := range []string{"/a", "/b", "/c"} {
			var r testcaddy.Answer
			if !wait.Poll(wait.Patience, func() bool {
				// A busy machine may take longer than a short timeout.
				r = do(b.caddies[process].freshClient(), "GET", b.caddies[process].url+path, "")
				return r.Err == nil && r.Header.Get("Retry-After") == ""
			}) {
				return &violation{"stuck", fmt.Sprintf("a new request for %s of process %d: %v", path, process, r)}
			}
		}
	}
	return nil
}

func (c *caddy) freshClient() *http.Client {
	return &http.Client{Timeout: wait.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
}
