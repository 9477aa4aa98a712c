//go:build linux

package main

import (
	"context"

	"github.com/orderly-http/caddy-orderly/bench/internal/plots"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// The suite respond puts the queue in front of the fastest handler there is, so
// all that it costs is seen.
var respondSuite = suite{
	name: "respond",
	measure: func(ctx context.Context, b *workbench) error {
		c := &contest{workbench: b, contestants: b.caddies("respond ok"), promised: true}
		return c.run(ctx, conditions(b.clients(), 0))
	},
	tables: func(s results.Set) []table {
		return []table{serverTable(s, "`respond` in Caddy, behind the queue and free.", "of Caddy, free", caddyFree, 0)}
	},
	draw: func(s results.Set) drawing {
		return plots.Figure{
			Title: "respond in Caddy: free, and behind the queue",
			Panels: [][]plots.Panel{{
				clientsPanel(s, rateMetric, "requests a second", everything),
				clientsPanel(s, lateMetric, "99th percentile of the wait, ms", everything),
			}},
		}
	},
	targets: func(all map[string]results.Set) []target {
		s := all["respond"]
		file := results.Case{Subject: onDisk(s, rateMetric, caddyFile), Clients: promisedClients}
		free := results.Case{Subject: caddyFree, Clients: promisedClients}
		return []target{atLeast("`respond` behind `serialize`, file on a disk, of free, 32 clients", 0.6, s.Ratio(file, free, rateMetric))}
	},
}

// clients are how many clients ask at once.
func (b *workbench) clients() []int {
	if b.quick {
		return []int{1, 32}
	}
	return []int{1, 32, 256, 4096}
}
