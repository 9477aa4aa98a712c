//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// The suite sharing has one process and four keep one queue.
var sharingSuite = suite{name: "sharing", measure: measureSharing, tables: sharingTables, targets: sharingTargets}

// sharers is how many processes share one directory.
const sharers = 4

func measureSharing(ctx context.Context, b *bench) error {
	c := &contest{bench: b, upstream: b.backend}
	upstream := b.reverseProxy()
	for _, n := range []int{1, sharers} {
		for _, who := range []*contestant{b.caddy(caddyFree, upstream), b.serializing(b.shm, upstream), b.serializing(b.disk, upstream)} {
			who.Processes = n
			c.contestants = append(c.contestants, who)
		}
	}
	return c.compare(ctx, each([]int{32, 256}[:pick(b.quick, 1, 2)], 0, 500*time.Microsecond))
}

func shared(c figures.Case) figures.Case { c.Processes = sharers; return c }

func alone(c figures.Case) figures.Case { c.Processes = 1; return c }

// lone are the cases of one process.
func lone(s figures.Set) []figures.Case {
	return only(inOrder(s, figures.Rate, byConditions), func(c figures.Case) bool { return c.Processes == 1 })
}

func sharingTargets(all figures.Set) (ts []target) {
	for _, c := range lone(all.Of("sharing")) {
		if c.Contestant == caddyFile && c.Clients == promisedClients && c.Hold == 0 {
			ts = append(ts, atLeast(fmt.Sprintf("%d processes on one directory, of one, %s, backend takes no time", sharers, name(c)), 0.75,
				all.Ratio(shared(c), c, figures.Rate)))
		}
	}
	return ts
}

func sharingTables(s figures.Set) []table {
	many := spread(fmt.Sprintf("%d processes", sharers), figures.Rate)
	return []table{tabulate(s, fmt.Sprintf("One Caddy and %d that share a directory.", sharers), lone(s),
		label("server", name), label("clients", clients), label("backend takes", hold),
		spread("one process, requests a second", figures.Rate), at(shared, many),
		at(shared, ratio("ratio", figures.Rate, alone)))}
}
