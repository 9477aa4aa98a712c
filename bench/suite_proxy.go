//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/chart"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite proxy puts the queues of Caddy and HAProxy in front of one backend.
var proxySuite = suite{name: "proxy", measure: measureProxy, tables: proxyTables, draw: drawProxy, targets: proxyTargets}

// HAProxy without a limit, with the least, and that one with a single thread: its
// threads get into each other's way there.
const (
	haproxyFree   = "HAProxy, free"
	haproxyOne    = "HAProxy, maxconn 1"
	haproxyThread = "HAProxy, maxconn 1, one thread"
)

func measureProxy(ctx context.Context, b *bench) error {
	c := &contest{bench: b, upstream: b.backend, promised: true, contestants: append(b.caddies(b.reverseProxy()),
		b.peer(haproxyFree, servers.HAProxy{Backend: b.backend.Addr}.Program()),
		b.peer(haproxyOne, servers.HAProxy{Backend: b.backend.Addr, MaxConn: 1}.Program()),
		b.peer(haproxyThread, servers.HAProxy{Backend: b.backend.Addr, MaxConn: 1, Threads: 1}.Program()))}
	return c.compare(ctx, each(b.crowds(), []time.Duration{0, 500 * time.Microsecond, 5 * time.Millisecond}[:pick(b.quick, 2, 3)]...))
}

func proxyTables(s figures.Set) (tables []table) {
	for _, held := range holds(s) {
		title := fmt.Sprintf("`reverse_proxy` to a backend that takes %s.", hold(figures.Case{Hold: held}))
		tables = append(tables, serverTable(s, title, "of HAProxy's `maxconn 1`", haproxyOne, held))
	}
	return tables
}

func drawProxy(s figures.Set) [][]chart.Panel {
	return [][]chart.Panel{overClients(s, figures.Rate, "requests a second"), overClients(s, figures.Late, "99th percentile of the wait, ms")}
}

func proxyTargets(all figures.Set) (ts []target) {
	for _, held := range []time.Duration{0, 500 * time.Microsecond} {
		ours := onDisk(all.Of("proxy"), figures.Rate, caddyFile, figures.Case{Suite: "proxy", Clients: promisedClients, Hold: held})
		under := fmt.Sprintf(", 32 clients, backend takes %s", hold(ours))
		ts = append(ts,
			atLeast("requests a second, of HAProxy's `maxconn 1`"+under, 1.1, all.Ratio(ours, instead(haproxyOne)(ours), figures.Rate)),
			atMost("99th percentile, of HAProxy's `maxconn 1`"+under, 1, "", all.Ratio(ours, instead(haproxyOne)(ours), figures.Late)))
	}
	return ts
}
