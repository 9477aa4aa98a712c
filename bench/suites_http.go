//go:build linux

package main

import (
	"context"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

var respondSuite = &suite{name: "respond", measure: measureRespond, tables: respondTables, draw: drawRespond}

// measureRespond puts the queue in front of the fastest thing there is, so all
// that it costs is seen.
func measureRespond(ctx context.Context, b *workbench, set *results.Set) error {
	contestants, err := b.caddies("respond ok")
	if err != nil {
		return err
	}
	c := &contest{bench: b, set: set, contestants: contestants, promised: true}
	return c.run(ctx, conditions(b.clients(), []time.Duration{0}))
}

// clients are how many clients ask at once.
func (b *workbench) clients() []int {
	if b.quick {
		return []int{1, 32}
	}
	return []int{1, 32, 256, 4096}
}

func (b *workbench) holds() []time.Duration {
	holds := []time.Duration{0, 500 * time.Microsecond, 5 * time.Millisecond}
	if b.quick {
		return holds[:2]
	}
	return holds
}

func conditions(clients []int, holds []time.Duration) (all []condition) {
	for _, hold := range holds {
		for _, n := range clients {
			all = append(all, condition{n, hold})
		}
	}
	return all
}

var proxySuite = &suite{name: "proxy", measure: measureProxy, tables: proxyTables, draw: drawProxy}

// measureProxy puts the queues in front of one backend.
func measureProxy(ctx context.Context, b *workbench, set *results.Set) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	contestants, err := b.caddies(reverseProxy(backend.Addr))
	if err != nil {
		return err
	}
	contestants = append(contestants, b.haproxies(backend.Addr)...)
	c := &contest{bench: b, set: set, backend: backend, contestants: contestants, promised: true}
	return c.run(ctx, conditions(b.clients(), b.holds()))
}

var sharingSuite = &suite{name: "sharing", measure: measureSharing, tables: sharingTables}

// sharers is how many processes share one directory.
const sharers = 4

// measureSharing has one process and four keep one queue.
func measureSharing(ctx context.Context, b *workbench, set *results.Set) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	var contestants []*contestant
	for _, processes := range []int{1, sharers} {
		contestants = append(contestants, b.caddyWith(caddyFree, reverseProxy(backend.Addr), processes))
		for _, dir := range []string{b.shm, b.disk} {
			c, err := b.serializing(dir, reverseProxy(backend.Addr), processes)
			if err != nil {
				return err
			}
			contestants = append(contestants, c)
		}
	}
	c := &contest{bench: b, set: set, backend: backend, contestants: contestants}
	clients := []int{32, 256}
	if b.quick {
		clients = clients[:1]
	}
	return c.run(ctx, conditions(clients, b.holds()[:2]))
}

var collectorSuite = &suite{name: "collector", measure: measureCollector, tables: collectorTables}

const (
	beforeRespond = "respond, "
	beforeBackend = "reverse_proxy, "
	lateCollector = "GOGC=400" // a setting of Go's runtime; 100 is the default
	withLate      = ", " + lateCollector
)

// measureCollector has Go's runtime collect garbage as by default, and a quarter
// as often.
func measureCollector(ctx context.Context, b *workbench, set *results.Set) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	respond, err := b.collecting(beforeRespond, "respond ok")
	if err != nil {
		return err
	}
	proxy, err := b.collecting(beforeBackend, reverseProxy(backend.Addr))
	if err != nil {
		return err
	}
	cond := conditions([]int{32, 256}, []time.Duration{0})
	if err := (&contest{bench: b, set: set, contestants: respond}).run(ctx, cond); err != nil {
		return err
	}
	return (&contest{bench: b, set: set, backend: backend, contestants: proxy}).run(ctx, cond)
}

func (b *workbench) collecting(prefix, behind string) (all []*contestant, err error) {
	for _, env := range [][]string{nil, {lateCollector}} {
		free := b.caddyWith(caddyFree, behind, 0, env...)
		serial, err := b.serializing(b.disk, behind, 0, env...)
		if err != nil {
			return nil, err
		}
		for _, c := range []*contestant{free, serial} {
			c.name = prefix + c.name
			if env != nil {
				c.name += withLate
			}
			all = append(all, c)
		}
	}
	return all, nil
}

var headersSuite = &suite{name: "headers", measure: measureHeaders, tables: headersTables}

// noHeader is what the others of a server are compared with.
const (
	noHeader    = "no header"
	fixedHeader = "a fixed text"
	fixedText   = "cbpvimguo4hkaps9lf6g"
)

// measureHeaders adds an ID to each response: beside the same server without
// one, and with a fixed text of the same length, for a header has its price,
// too.
func measureHeaders(ctx context.Context, b *workbench, set *results.Set) error {
	var all []*contestant
	caddy := func(name, value string) {
		all = append(all, b.caddyWith("Caddy, "+name, "unique_ids\nheader X-Request-Id "+value+"\nrespond ok", 0))
	}
	all = append(all, b.caddyWith("Caddy, "+noHeader, "respond ok", 0))
	caddy(fixedHeader, fixedText)
	caddy("{http.request.txid}", "{http.request.txid}")
	caddy("{unique_id}", "{unique_id}")
	caddy("{http.request.uuid}", "{http.request.uuid}")
	nginx := func(name, value string) {
		all = append(all, &contestant{name: "nginx, " + name, start: servers.Nginx{Home: b.home, Header: value}.Start})
	}
	nginx(noHeader, "")
	nginx(fixedHeader, fixedText)
	nginx("$request_id", "$request_id")
	apache := func(name, value string, ids bool) {
		all = append(all, &contestant{name: "apache2, " + name, start: servers.Apache{Home: b.home, Header: value, UniqueID: ids}.Start})
	}
	apache(noHeader, "", false)
	apache(fixedHeader, fixedText, false)
	apache("mod_unique_id", "%{UNIQUE_ID}e", true)
	c := &contest{bench: b, set: set, contestants: all}
	return c.run(ctx, conditions([]int{32}, []time.Duration{0}))
}
