//go:build linux

package main

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/ids"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// The suite ids compares generators of IDs. The groups are ours and others.
var idsSuite = suite{name: "ids", measure: measureIDs, tables: idsTables}

const ourIDs, otherIDs = "Orderly", "others"

func measureIDs(ctx context.Context, b *bench) error {
	effort := pick(b.quick, ids.Effort{Rounds: 3, PerTurn: 20_000, Pairs: 3, PerPair: 20_000}, ids.Effort{Rounds: 9, PerTurn: 200_000, Pairs: 101, PerPair: 20_000})
	return b.alternate(ctx, b.runs, trial{figures.Case{Contestant: "all generators"}, func(context.Context) (figures.Values, error) {
		b.noteIDs(ids.Measure(effort))
		return nil, nil
	}})
}

func (b *bench) noteIDs(speeds []ids.Speed) {
	for _, g := range speeds {
		c := figures.Case{Group: otherIDs, Contestant: g.Name}
		if g.Ours {
			c.Group = ourIDs
		}
		for m, value := range map[figures.Metric]float64{
			figures.ID: g.Time, figures.IDRatio: g.Ratio, figures.Allocations: g.Allocations, figures.IDScaling: g.Scaling,
		} {
			if !math.IsNaN(value) {
				b.note(c, figures.Values{m: value})
			}
		}
	}
}

func idsTables(s figures.Set) []table {
	cases := s.Cases(figures.ID)
	slices.SortStableFunc(cases, func(a, b figures.Case) int {
		return cmp.Compare(s.Summary(a, figures.ID).Median, s.Summary(b, figures.ID).Median)
	})
	return []table{tabulate(s, "Making an ID as text, one after another.", cases,
		label("generator", func(c figures.Case) string { return c.Contestant }),
		spread("nanoseconds", figures.ID), median("of rs/xid's", figures.IDRatio),
		median("allocations", figures.Allocations), median("two cores make, times", figures.IDScaling))}
}
