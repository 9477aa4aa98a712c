//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite ids runs the comparison of generators in bench/ids, which is a module of
// its own with all their libraries. The groups are ours and others.
var idsSuite = suite{name: "ids", measure: measureIDs, tables: idsTables}

const ourIDs, otherIDs = "Orderly", "others"

func measureIDs(ctx context.Context, b *bench) error {
	root, err := servers.Root(ctx)
	if err != nil {
		return err
	}
	program := filepath.Join(b.home, "ratios")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./ratios")
	build.Dir = filepath.Join(root, "bench", "ids")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the comparison of IDs: %w\n%s", err, out)
	}
	rounds, n, pairs := pick(b.quick, 3, 9), pick(b.quick, 20_000, 200_000), pick(b.quick, 3, 101)
	return b.alternate(ctx, b.runs, trial{figures.Case{Contestant: "all generators"}, func(ctx context.Context) (figures.Values, error) {
		out, err := exec.CommandContext(ctx, program, "-json", "-rounds", strconv.Itoa(rounds), "-n", strconv.Itoa(n), "-pairs", strconv.Itoa(pairs)).Output()
		if err != nil {
			return nil, fmt.Errorf("comparing IDs: %w", err)
		}
		return nil, b.noteIDs(out)
	}})
}

// noteIDs reads the report of the comparison.
func (b *bench) noteIDs(report []byte) error {
	var generators []struct {
		Name                     string
		Ours                     bool
		Time, Ratio, Allocations *float64 // nil for a yardstick that makes no IDs
		Scaling                  *float64 // nil without a second core
	}
	if err := json.Unmarshal(report, &generators); err != nil {
		return fmt.Errorf("reading the comparison of IDs: %w", err)
	}
	for _, g := range generators {
		c := figures.Case{Group: otherIDs, Contestant: g.Name}
		if g.Ours {
			c.Group = ourIDs
		}
		for m, value := range map[figures.Metric]*float64{
			figures.ID: g.Time, figures.IDRatio: g.Ratio, figures.Allocations: g.Allocations, figures.IDScaling: g.Scaling,
		} {
			if value != nil {
				b.note(c, figures.Values{m: *value})
			}
		}
	}
	return nil
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
