// Package results keeps what was measured, every single run of it, and reads it
// back from CSV.
package results

import (
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/stats"
)

// Case is one thing measured under one set of conditions. Conditions that do
// not apply are zero.
type Case struct {
	Subject   string        // what was measured
	Processes int           // that shared the work
	Clients   int           // that asked at the same time, or goroutines
	Hold      time.Duration // that each turn lasted
	Waiting   int           // in the queue all the time
}

// Record is one figure of one run.
type Record struct {
	Case
	Run    int
	Metric string
	Value  float64
	Unit   string
}

// Set is everything that one suite has measured.
type Set []Record

// Add appends a figure.
func (s *Set) Add(c Case, run int, metric string, value float64, unit string) {
	*s = append(*s, Record{Case: c, Run: run, Metric: metric, Value: value, Unit: unit})
}

// Summary sums up the runs of a figure.
func (s Set) Summary(c Case, metric string) stats.Summary {
	var values []float64
	for _, r := range s {
		if r.Case == c && r.Metric == metric {
			values = append(values, r.Value)
		}
	}
	return stats.Summarize(values)
}

// Ratio sums up the ratios of a figure to the same figure of another case, run
// by run: what disturbs the machine disturbs neighbours alike.
func (s Set) Ratio(c, base Case, metric string) stats.Summary {
	bases := make(map[int]float64)
	for _, r := range s {
		if r.Case == base && r.Metric == metric {
			bases[r.Run] = r.Value
		}
	}
	var ratios []float64
	for _, r := range s {
		if b, ok := bases[r.Run]; ok && r.Case == c && r.Metric == metric && b != 0 {
			ratios = append(ratios, r.Value/b)
		}
	}
	return stats.Summarize(ratios)
}

// Cases lists the cases that have a figure, in the order of their first runs.
func (s Set) Cases(metric string) (cases []Case) {
	for _, r := range s {
		if r.Metric == metric && !slices.Contains(cases, r.Case) {
			cases = append(cases, r.Case)
		}
	}
	return cases
}

// Subjects lists the subjects that have a figure, in the order of their first
// runs.
func (s Set) Subjects(metric string) (subjects []string) {
	for _, c := range s.Cases(metric) {
		if !slices.Contains(subjects, c.Subject) {
			subjects = append(subjects, c.Subject)
		}
	}
	return subjects
}
