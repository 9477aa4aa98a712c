//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/plots"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite proxy puts the queues of Caddy and HAProxy in front of one backend.
var proxySuite = suite{name: "proxy", measure: measureProxy, tables: proxyTables, draw: drawProxy, targets: proxyTargets}

// HAProxy without a limit, with the least, and that one with a single thread:
// its threads get into each other's way there.
var (
	haproxyFree   = results.Subject{Name: "HAProxy, free"}
	haproxyOne    = results.Subject{Name: "HAProxy, maxconn 1"}
	haproxyThread = results.Subject{Name: "HAProxy, maxconn 1, one thread"}
)

func measureProxy(ctx context.Context, b *workbench) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	haproxy := func(subject results.Subject, limit, threads int) *contestant {
		return &contestant{Subject: subject, start: servers.HAProxy{Home: b.home, Backend: backend.Addr, MaxConn: limit, Threads: threads}.Start}
	}
	c := &contest{workbench: b, backend: backend, contestants: b.caddies(reverseProxy(backend)), promised: true}
	c.contestants = append(c.contestants, haproxy(haproxyFree, 0, 0), haproxy(haproxyOne, 1, 0), haproxy(haproxyThread, 1, 1))
	holds := []time.Duration{0, 500 * time.Microsecond}
	if !b.quick {
		holds = append(holds, 5*time.Millisecond)
	}
	return c.run(ctx, conditions(b.clients(), holds...))
}

func proxyTables(s results.Set) (tables []table) {
	for _, hold := range holdsOf(s) {
		title := fmt.Sprintf("`reverse_proxy` to a backend that takes %s.", holdText(hold))
		tables = append(tables, serverTable(s, title, "of HAProxy's `maxconn 1`", haproxyOne, hold))
	}
	return tables
}

func drawProxy(s results.Set) drawing {
	row := func(m results.Metric, title string) (panels []plots.Panel) {
		for _, hold := range holdsOf(s) {
			panels = append(panels, clientsPanel(s, m, fmt.Sprintf("%s; the backend takes %s", title, holdText(hold)),
				func(c results.Case) bool { return c.Hold == hold }))
		}
		return panels
	}
	return plots.Figure{
		Title:  "In front of one backend: Caddy and HAProxy, free and one at a time",
		Panels: [][]plots.Panel{row(rateMetric, "requests a second"), row(lateMetric, "99th percentile of the wait, ms")},
	}
}

func proxyTargets(all map[string]results.Set) (ts []target) {
	s := all["proxy"]
	for _, hold := range []time.Duration{0, 500 * time.Microsecond} {
		ours := results.Case{Subject: onDisk(s, rateMetric, caddyFile), Clients: promisedClients, Hold: hold}
		theirs := withSubject(haproxyOne)(ours)
		under := fmt.Sprintf(", 32 clients, backend takes %s", holdText(hold))
		ts = append(ts,
			atLeast("requests a second, of HAProxy's `maxconn 1`"+under, 1.1, s.Ratio(ours, theirs, rateMetric)),
			atMost("99th percentile, of HAProxy's `maxconn 1`"+under, 1, "", s.Ratio(ours, theirs, lateMetric)))
	}
	return ts
}
