//go:build unix

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
		env := map[string]string{"UPSTREAM": b.upstream.addr}
		b.caddies = append(b.caddies, start(b.t, setup{site: "respond idle", env: env}))
	}
	for _, process := range b.caddies[:c.Processes] {
		text := c.caddyfile(dir, round, b.unguarded)
		if err := process.Load("text/caddyfile", text); err != nil {
			return fmt.Errorf("loading the configuration: %w\n%s", err, text)
		}
		process.awaitOneListener()
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
	empty := wait.Poll(2*(promptly+leeway), func() bool { return len(b.tickets(c, dir))+len(lockFiles(b.t, dir)) == 0 })
	close(done)
	helpers.Wait()
	if !idle || reloaded != nil {
		return nil, errors.Join(reloaded, fmt.Errorf("the upstream works no more: %t", idle))
	}
	h.visits = b.upstream.take()
	h.judge()
	if !empty {
		h.violated("left behind", "%v and %v, though all work has ended", b.tickets(c, dir), lockFiles(b.t, dir))
		return h.found, nil
	}
	for _, process := range b.caddies[:c.Processes] {
		for _, path := range []string{"/a", "/b", "/c"} { // for which the queues are free
			passes := func() bool { r := process.get(path); return r.Err == nil && r.Header.Get("Retry-After") == "" }
			if !wait.Poll(wait.Patience, passes) { // a busy machine may take longer than a short timeout
				h.violated("stuck", "new requests for %s do not pass", path)
			}
		}
	}
	b.upstream.take()
	return h.found, nil
}

// clients runs the clients of a case to their ends.
func (b *edgeBench) clients(c *edgeCase) []*edgeAnswer {
	answers := make([][]*edgeAnswer, len(c.Clients))
	var all sync.WaitGroup
	for i, client := range c.Clients {
		addr := b.caddies[client.Process%c.Processes].host()
		all.Go(func() { answers[i] = client.run(fmt.Sprintf("r%d", i), addr, b.upstream) })
	}
	all.Wait()
	return slices.Concat(answers...)
}

// edgeTicketState is a ticket as the admin API lists it.
type edgeTicketState struct{ Token, State, Client, queue string }

// tickets lists the tickets that the processes of a case see.
func (b *edgeBench) tickets(c *edgeCase, dir string) (tickets []edgeTicketState) {
	for _, process := range b.caddies[:c.Processes] {
		var queues []struct {
			Path, Prefix string
			Tickets      []edgeTicketState
		}
		_ = json.Unmarshal([]byte(process.API("GET", "/serialize/queues", "").Text), &queues)
		for _, q := range queues {
			for _, t := range q.Tickets {
				t.queue = q.Prefix
				if q.Path == dir { // others are of other cases
					tickets = append(tickets, t)
				}
			}
		}
	}
	return tickets
}

// watch keeps reading the tickets, and evicts one when it is time.
func (b *edgeBench) watch(h *edgeHistory, dir string, done <-chan struct{}) {
	for started := time.Now(); ; {
		select {
		case <-done:
			return
		case <-time.After(40 * time.Millisecond):
		}
		asked := time.Now()
		for _, t := range b.tickets(h.c, dir) {
			h.note(t, asked)
			if h.c.Evict > 0 && h.evictAt.IsZero() && time.Since(started) > ms(h.c.Evict) {
				h.evicted, h.evictAt = edgeTicketID{t.queue, t.Token}, time.Now()
				b.caddies[0].API("DELETE", "/serialize/queues/"+url.PathEscape(dir+"/"+t.queue)+"/"+t.Token, "")
			}
		}
	}
}

func (h *edgeHistory) note(t edgeTicketState, asked time.Time) {
	id := edgeTicketID{t.queue, t.Token}
	if h.tickets[id] == nil {
		h.tickets[id] = new(edgeTicket)
	}
	ticket := h.tickets[id]
	if addr, err := netip.ParseAddrPort(t.Client); err == nil {
		ticket.port = int(addr.Port())
	}
	if t.State == "waiting" {
		ticket.waiting = asked
		return
	}
	if ticket.inside.IsZero() {
		ticket.inside = time.Now()
	}
	ticket.stillInside = asked
}
