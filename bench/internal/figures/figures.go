// Package figures keeps what was measured, and sums it up: medians of rounds, and ratios
// of neighbours.
package figures

import (
	"math"
	"slices"
	"time"
)

// Case is one contestant under one set of conditions. Conditions that do not apply
// are zero.
type Case struct {
	Who     string
	Clients int           // that ask at the same time
	Hold    time.Duration // that a request lasts upstream, nanoseconds
}

// Values are the figures of one round, by name.
type Values map[string]float64

// Row is what was measured of a case: for each figure its values, round after round.
type Row struct {
	Case
	Values map[string][]float64
}

// Set is what a suite has measured, and where.
type Set struct {
	Date string
	Rows []*Row // in the order in which contestants had their first turn
}

// Add appends the figures of a round.
func (s *Set) Add(c Case, values Values) {
	row := s.row(c)
	if row == nil {
		row = &Row{c, make(map[string][]float64)}
		s.Rows = append(s.Rows, row)
	}
	for name, value := range values {
		row.Values[name] = append(row.Values[name], value)
	}
}

func (s *Set) row(c Case) *Row {
	i := slices.IndexFunc(s.Rows, func(r *Row) bool { return r.Case == c })
	if i < 0 {
		return nil
	}
	return s.Rows[i]
}

// Cases lists the cases that have a figure.
func (s *Set) Cases(figure string) (cases []Case) {
	for _, r := range s.Rows {
		if len(r.Values[figure]) > 0 {
			cases = append(cases, r.Case)
		}
	}
	return cases
}

// Of sums up a figure of a case.
func (s *Set) Of(c Case, figure string) Summary { return Summarize(s.values(c, figure)) }

func (s *Set) values(c Case, figure string) []float64 {
	if row := s.row(c); row != nil {
		return row.Values[figure]
	}
	return nil
}

// Ratios are those of a figure to the same one of another contestant under the same
// conditions, round by round: what disturbs the machine disturbs neighbours alike.
func (s *Set) Ratios(c Case, figure, base string) (ratios []float64) {
	other := c
	other.Who = base
	bases := s.values(other, figure)
	for i, value := range s.values(c, figure) {
		if i < len(bases) && bases[i] != 0 {
			ratios = append(ratios, value/bases[i])
		}
	}
	return ratios
}

// Summary sums up several measurements of one thing. Those of nothing are not
// numbers.
type Summary struct{ Median, Least, Most float64 }

// Summarize sums up values.
func Summarize(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Summary{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}
