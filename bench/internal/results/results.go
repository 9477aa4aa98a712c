// Package results keeps the figures of every single run, sums them up, and
// writes and reads them as CSV.
package results

import (
	"slices"
	"time"
)

// Subject is the thing that was measured. Fields that do not apply are empty.
type Subject struct {
	Group      string // of subjects that are compared with each other
	Name       string
	FileSystem string // that its lock files are on
	Detail     string // a setting, or the part of the subject that was counted
}

// String writes the subject for people.
func (s Subject) String() string {
	text := s.Name
	if s.Group != "" {
		text = s.Group + ", " + text
	}
	if s.FileSystem != "" {
		text += " on " + s.FileSystem
	}
	if s.Detail != "" {
		text += ", " + s.Detail
	}
	return text
}

// Case is one subject under one set of conditions. Conditions that do not apply
// are zero.
type Case struct {
	Subject
	Processes int           // that shared the work
	Clients   int           // that asked at the same time, or goroutines
	Hold      time.Duration // that each turn lasted
	Waiting   int           // in the queue all the time
}

// Metric is a kind of figure.
type Metric struct{ Name, Unit string }

// Record is one figure of one run.
type Record struct {
	Case
	Run    int
	Metric Metric
	Value  float64
}

// Set is everything that one suite has measured.
type Set []Record

// Add appends a figure.
func (s *Set) Add(c Case, run int, m Metric, value float64) {
	*s = append(*s, Record{c, run, m, value})
}

// runs are the values of a figure by run.
func (s Set) runs(c Case, m Metric) map[int]float64 {
	values := make(map[int]float64)
	for _, r := range s {
		if r.Case == c && r.Metric == m {
			values[r.Run] = r.Value
		}
	}
	return values
}

// Summary sums up the runs of a figure.
func (s Set) Summary(c Case, m Metric) Summary {
	var values []float64
	for _, value := range s.runs(c, m) {
		values = append(values, value)
	}
	return Summarize(values)
}

// Ratio sums up the ratios of a figure to the same figure of another case, run
// by run: what disturbs the machine disturbs neighbours alike.
func (s Set) Ratio(c, base Case, m Metric) Summary {
	var ratios []float64
	bases := s.runs(base, m)
	for run, value := range s.runs(c, m) {
		if bases[run] != 0 {
			ratios = append(ratios, value/bases[run])
		}
	}
	return Summarize(ratios)
}

// Cases lists the cases that have a figure, in the order of their first runs.
func (s Set) Cases(m Metric) (cases []Case) {
	for _, r := range s {
		if r.Metric == m && !slices.Contains(cases, r.Case) {
			cases = append(cases, r.Case)
		}
	}
	return cases
}

// Subjects lists the subjects that have a figure, in the order of their first
// runs.
func (s Set) Subjects(m Metric) (subjects []Subject) {
	for _, c := range s.Cases(m) {
		if !slices.Contains(subjects, c.Subject) {
			subjects = append(subjects, c.Subject)
		}
	}
	return subjects
}
