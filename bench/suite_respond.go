//go:build linux

package main

import (
	"context"

	"github.com/orderly-http/caddy-orderly/bench/internal/chart"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// The suite respond puts the queue in front of the fastest handler there is, so all
// that it costs is seen.
var respondSuite = suite{
	name: "respond",
	measure: func(ctx context.Context, b *bench) error {
		c := &contest{bench: b, contestants: b.caddies("respond ok"), promised: true}
		return c.compare(ctx, each(b.crowds(), 0))
	},
	tables: func(s figures.Set) []table {
		return []table{serverTable(s, "`respond` in Caddy, with a queue and free.", "of Caddy, free", caddyFree, 0)}
	},
	draw: func(s figures.Set) [][]chart.Panel {
		return [][]chart.Panel{append(
			overClients(s, figures.Rate, "requests a second"),
			overClients(s, figures.Late, "99th percentile of the wait, ms")...)}
	},
	targets: func(all figures.Set) []target {
		file := onDisk(all.Of("respond"), figures.Rate, caddyFile, figures.Case{Suite: "respond", Clients: promisedClients})
		free := instead(caddyFree)(file)
		memory := instead(caddyMemory)(file)
		return []target{
			atLeast("`respond` behind `serialize`, file on a disk, of free, 32 clients", 0.7, all.Ratio(file, free, figures.Rate)),
			atLeast("the same, memory", 0.85, all.Ratio(memory, free, figures.Rate)),
		}
	},
}

// crowds are how many clients ask at once.
func (b *bench) crowds() []int { return pick(b.quick, []int{1, 32}, []int{1, 32, 256, 4096}) }
