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

	"github.com/orderly-http/caddy-orderly/bench/internal/plots"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite ids runs the comparison of the generators of IDs, which is a module
// of its own with all their libraries. The groups are ours and others.
var idsSuite = suite{name: "ids", measure: measureIDs, tables: idsTables, draw: drawIDs}

const ourIDs, otherIDs = "Orderly", "others"

var (
	idMetric        = results.Metric{Name: "an ID", Unit: "ns"}
	idRatioMetric   = results.Metric{Name: "ratio"} // to rs/xid
	idScalingMetric = results.Metric{Name: "two cores"}
)

func measureIDs(ctx context.Context, b *workbench) error {
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
	rounds, n := pick(0, b.quick, 3, 9), pick(0, b.quick, 50_000, 200_000)
	for run := range b.runs {
		err := b.round(ctx, results.Case{Subject: results.Subject{Name: "all makers"}}, run+1, func() error {
			out, err := exec.CommandContext(ctx, program, "-json", "-rounds", strconv.Itoa(rounds), "-n", strconv.Itoa(n)).Output()
			if err != nil {
				return fmt.Errorf("comparing IDs: %w", err)
			}
			b.say("run %d of %d", run+1, b.runs)
			return b.noteIDs(out, run+1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noteIDs reads the report of the comparison.
func (b *workbench) noteIDs(report []byte, run int) error {
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
		c := results.Case{Subject: results.Subject{Group: otherIDs, Name: g.Name}}
		if g.Ours {
			c.Group = ourIDs
		}
		add := func(m results.Metric, value *float64) {
			if value != nil {
				b.set.Add(c, run, m, *value)
			}
		}
		add(idMetric, g.Time)
		add(idRatioMetric, g.Ratio)
		add(allocsMetric, g.Allocations)
		add(idScalingMetric, g.Scaling)
	}
	return nil
}

// bySpeed lists the generators of IDs, the fastest first.
func bySpeed(s results.Set) []results.Case {
	return slices.SortedStableFunc(slices.Values(s.Cases(idMetric)), func(a, b results.Case) int {
		return cmp.Compare(s.Summary(a, idMetric).Median, s.Summary(b, idMetric).Median)
	})
}

func idsTables(s results.Set) []table {
	return []table{tabulate(s, "Making an ID as text, one after another.", bySpeed(s),
		words("maker", func(c results.Case) string { return c.Name }),
		spreadColumn("nanoseconds", idMetric, itself),
		medianColumn("of rs/xid's", idRatioMetric),
		medianColumn("allocations", allocsMetric),
		medianColumn("two cores make, times", idScalingMetric),
	)}
}

func drawIDs(s results.Set) drawing {
	b := plots.Bars{Title: "Making an ID as text", X: "nanoseconds, one after another (less is better)", Legend: [2]string{ourIDs, otherIDs}}
	for _, c := range bySpeed(s) {
		took := s.Summary(c, idMetric)
		b.Bars = append(b.Bars, plots.Bar{
			Name: c.Name, Value: took.Median, Low: took.Min, High: took.Max, Ours: c.Group == ourIDs,
			Note: fmt.Sprintf("%.0f", took.Median),
		})
	}
	return b
}
