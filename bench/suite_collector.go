//go:build linux

package main

import (
	"context"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite collector has Go's runtime collect garbage as by default, and a
// quarter as often. The groups are the directives behind the queue.
var collectorSuite = suite{name: "collector", measure: measureCollector, tables: collectorTables}

const lateCollector = "GOGC=400" // a setting of Go's runtime; 100 is the default

func measureCollector(ctx context.Context, b *workbench) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	cond := conditions([]int{32, 256}, 0)
	respond := &contest{workbench: b, contestants: b.collecting("respond", "respond ok")}
	if err := respond.run(ctx, cond); err != nil {
		return err
	}
	proxy := &contest{workbench: b, backend: backend, contestants: b.collecting("reverse_proxy", reverseProxy(backend))}
	return proxy.run(ctx, cond)
}

func (b *workbench) collecting(group, upstream string) (all []*contestant) {
	for _, env := range [][]string{nil, {lateCollector}} {
		for _, c := range []*contestant{b.caddy(caddyFree, upstream, 0, env...), b.serializing(b.disk, upstream, 0, env...)} {
			c.Group = group
			if env != nil {
				c.Detail = lateCollector
			}
			all = append(all, c)
		}
	}
	return all
}

func collectorTables(s results.Set) []table {
	late := func(c results.Case) results.Case { c.Detail = lateCollector; return c }
	cases := slices.DeleteFunc(byClients(s), func(c results.Case) bool { return c.Detail != "" })
	return []table{tabulate(s, "Requests a second with a garbage collector that comes less often, in front of what takes no time.", cases,
		subjectColumn("behind it, server"), clientsColumn("clients"),
		spreadColumn("as by default", rateMetric, itself), spreadColumn(lateCollector, rateMetric, late),
		column{"ratio", func(s results.Set, c results.Case) string { return spread(s.Ratio(late(c), c, rateMetric)) }},
	)}
}
