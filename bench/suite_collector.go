//go:build linux

package main

import (
	"context"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// The suite collector has Go's runtime collect garbage as by default, and a quarter as
// often. The groups are the directives behind the queue.
var collectorSuite = suite{name: "collector", measure: measureCollector, tables: collectorTables}

const lateCollector = "GOGC=400" // a setting of Go's runtime; 100 is the default

func measureCollector(ctx context.Context, b *bench) error {
	respond := &contest{bench: b, contestants: b.collecting("respond", "respond ok")}
	if err := respond.compare(ctx, each([]int{32, 256}, 0)); err != nil {
		return err
	}
	proxy := &contest{bench: b, upstream: b.backend, contestants: b.collecting("reverse_proxy", b.reverseProxy())}
	return proxy.compare(ctx, each([]int{32, 256}, 0))
}

func (b *bench) collecting(group, upstream string) (all []*contestant) {
	for _, setting := range []string{"", lateCollector} {
		for _, c := range []*contestant{b.caddy(caddyFree, upstream), b.serializing(b.disk, upstream)} {
			c.Group, c.Setting, c.caddy.Env = group, setting, []string{setting}
			all = append(all, c)
		}
	}
	return all
}

func collectorTables(s figures.Set) []table {
	late := func(c figures.Case) figures.Case { c.Setting = lateCollector; return c }
	cases := only(inOrder(s, figures.Rate, byConditions), func(c figures.Case) bool { return c.Setting == "" })
	return []table{tabulate(s, "Requests a second with less frequent garbage collection; responses take no time.", cases,
		label("handler, server", name), label("clients", clients),
		spread("by default", figures.Rate), at(late, spread(lateCollector, figures.Rate)),
		column{"ratio", func(s figures.Set, c figures.Case) string { return rangeText(s.Ratio(late(c), c, figures.Rate)) }})}
}
