//go:build linux

package main

import "github.com/orderly-http/caddy-orderly/bench/internal/results"

// target is a figure that was promised.
type target struct {
	what     string
	bound    float64
	atLeast  bool // else at most
	unit     string
	measured results.Summary
}

func atLeast(what string, bound float64, measured results.Summary) target {
	return target{what, bound, true, "", measured}
}

func atMost(what string, bound float64, unit string, measured results.Summary) target {
	return target{what, bound, false, unit, measured}
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

func (t target) promise() string {
	if t.atLeast {
		return "at least " + number(t.bound) + t.unit
	}
	return "at most " + number(t.bound) + t.unit
}

func targetsTable(all map[string]results.Set) table {
	t := table{title: "What was promised, and what was measured.", head: []string{"figure", "promise", "measured", "met"}}
	for _, s := range suites {
		if s.targets == nil {
			continue
		}
		for _, target := range s.targets(all) {
			t.rows = append(t.rows, []string{target.what, target.promise(), spread(target.measured), target.met()})
		}
	}
	return t
}
