//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

var idsSuite = &suite{name: "ids", measure: measureIDs, tables: idsTables, draw: drawIDs}

// The figures of makers of IDs.
const (
	idMetric          = "an ID"
	idRatioMetric     = "ratio"
	idAllocsMetric    = "allocations"
	idScalingMetric   = "two cores"
	ratioBase         = "rs/xid"
	nothingShared     = "nothing shared"
	roundsOfOneRun    = 9
	roundsOfQuickRun  = 3
	idsOfOneTurn      = 200_000
	idsOfOneQuickTurn = 50_000
)

// measureIDs runs the comparison of the makers of IDs, which is a module of its
// own with all their libraries.
func measureIDs(ctx context.Context, b *workbench, set *results.Set) error {
	root, err := servers.Root(ctx)
	if err != nil {
		return err
	}
	rounds, n := roundsOfOneRun, idsOfOneTurn
	if b.quick {
		rounds, n = roundsOfQuickRun, idsOfOneQuickTurn
	}
	program := filepath.Join(b.home, "ratios")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./ratios")
	build.Dir = filepath.Join(root, "bench", "ids")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the comparison of IDs: %w\n%s", err, out)
	}
	for run := range b.runs {
		err := b.round(ctx, set, results.Case{Subject: "all makers"}, run+1, func() error {
			out, err := exec.CommandContext(ctx, program, "-rounds", strconv.Itoa(rounds), "-n", strconv.Itoa(n)).Output()
			if err != nil {
				return fmt.Errorf("comparing IDs: %w", err)
			}
			b.say("run %d of %d", run+1, b.runs)
			return parseIDs(out, run+1, set)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var columns = regexp.MustCompile(`\s{2,}`)

// parseIDs reads the tables of the comparison: first name, time, best time,
// ratio and allocations, then name and scaling.
func parseIDs(text []byte, run int, set *results.Set) error {
	var metrics []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := columns.Split(strings.TrimSpace(lines.Text()), -1)
		switch {
		case fields[0] == "one goroutine":
			metrics = []string{idMetric, "", idRatioMetric, idAllocsMetric}
			continue
		case fields[0] == "two cores":
			metrics = []string{idScalingMetric, ""}
			continue
		case len(fields) != len(metrics)+1:
			continue
		}
		for i, metric := range metrics {
			value, err := strconv.ParseFloat(fields[i+1], 64)
			// In place of a scaling there may be words: that there was no
			// second core to be had.
			if metric != "" && err == nil {
				set.Add(results.Case{Subject: fields[0]}, run, metric, value, unitOf(metric))
			}
		}
	}
	if len(set.Cases(idMetric)) == 0 {
		return fmt.Errorf("the comparison of IDs printed no table:\n%s", text)
	}
	return nil
}

func unitOf(metric string) string {
	if metric == idMetric {
		return "ns"
	}
	return ""
}
