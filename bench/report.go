//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/chart"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
)

// report makes tables and plots of all the figures that lie in the folder, whenever
// they were measured.
func report(o options) error {
	var all figures.Set
	blocks := make(map[string]string)
	for _, s := range suites {
		set, err := figures.Read[figures.Row](filepath.Join(o.out, s.name+".csv"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		all = append(all, set...)
		blocks[s.name] = render(s.tables(set)...) + "\n" + disturbance(set) + "\n"
		fmt.Printf("\n== %s\n\n%s", s.name, blocks[s.name])
		if s.draw == nil {
			continue
		}
		if err := chart.Save(filepath.Join(o.out, s.name+".png"), s.draw(set)); err != nil {
			return err
		}
	}
	blocks["targets"] = render(targetsTable(all))
	fmt.Printf("\n== targets\n\n%s", blocks["targets"])
	facts, err := figures.Read[machine.Fact](filepath.Join(o.out, machineFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	about := table{title: "The machine, and the others' versions.", head: []string{"what", "which"}}
	for _, fact := range facts {
		about.rows = append(about.rows, []string{fact.What, fact.Which})
	}
	blocks["machine"] = render(about)
	if o.doc == "" {
		return nil
	}
	return refresh(o.doc, blocks)
}

// render writes tables. A table is empty where a program is missing, or where a quick
// look leaves it out.
func render(tables ...table) string {
	var texts []string
	for _, t := range tables {
		if len(t.rows) > 0 {
			texts = append(texts, t.String())
		}
	}
	return strings.Join(texts, "\n")
}

// disturbance tells how far the figures of a set can be trusted: what part of the
// machine other programs used meanwhile.
func disturbance(s figures.Set) string {
	runs := make(map[figures.Case]int)
	var values []float64
	for _, r := range s {
		runs[r.Case] = max(runs[r.Case], r.Run)
		if r.Metric == figures.Others {
			values = append(values, r.Value)
		}
	}
	counts := slices.Sorted(maps.Values(runs))
	often := fmt.Sprint(counts[0])
	if most := counts[len(counts)-1]; most != counts[0] {
		often += fmt.Sprintf(" to %d", most)
	}
	text := fmt.Sprintf("Medians of %s runs, minimum and maximum in brackets.", often)
	if others := figures.Summarize(values); others.N > 0 {
		text += fmt.Sprintf(" Meanwhile other programs used %.0f %% of the machine (median; at most %.0f %%).", others.Median, others.Max)
	}
	return text
}

// target is a figure that was promised: at most the bound, or at least.
type target struct {
	what     string
	atLeast  bool
	bound    float64
	unit     string
	measured figures.Summary
}

func atLeast(what string, bound float64, measured figures.Summary) target {
	return target{what, true, bound, "", measured}
}

func atMost(what string, bound float64, unit string, measured figures.Summary) target {
	return target{what, false, bound, unit, measured}
}

func (t target) met() string {
	switch {
	case t.measured.N == 0:
		return "not measured"
	case t.atLeast == (t.measured.Median >= t.bound), t.measured.Median == t.bound:
		return "yes"
	}
	return "**no**"
}

func targetsTable(all figures.Set) table {
	t := table{title: "What was promised, and what was measured.", head: []string{"figure", "promise", "measured", "met"}}
	for _, s := range suites {
		if s.targets == nil {
			continue
		}
		for _, target := range s.targets(all) {
			promise := map[bool]string{true: "at least ", false: "at most "}[target.atLeast] + number(target.bound) + target.unit
			t.rows = append(t.rows, []string{target.what, promise, rangeText(target.measured), target.met()})
		}
	}
	return t
}

const blockBegins = "<!-- figures: "

// block is the text of a document between the lines "<!-- figures: name -->" and
// "<!-- end -->".
var block = regexp.MustCompile(`(?s)` + blockBegins + `(\w+) -->\n.*?<!-- end -->`)

// refresh replaces the blocks of a document.
func refresh(path string, blocks map[string]string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if text := string(old); strings.Count(text, blockBegins) != len(block.FindAllString(text, -1)) {
		return fmt.Errorf("refreshing %s: a block has no end", path)
	}
	text := block.ReplaceAllStringFunc(string(old), func(whole string) string {
		name := block.FindStringSubmatch(whole)[1]
		if tables, ok := blocks[name]; ok {
			return blockBegins + name + " -->\n\n" + tables + "\n<!-- end -->"
		}
		return whole
	})
	return os.WriteFile(path, []byte(text), 0o644)
}
