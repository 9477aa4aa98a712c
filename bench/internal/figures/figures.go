// Package figures keeps what was measured, and sums it up: medians of rounds, ratios
// of neighbours, and how certain they are.
package figures

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Case is one contestant under one set of conditions. Conditions that do not apply
// are zero.
type Case struct {
	Who     string        `json:"who"`
	Clients int           `json:"clients,omitempty"` // that ask at the same time
	Hold    time.Duration `json:"hold,omitempty"`    // that a request lasts upstream, nanoseconds
}

// Values are the figures of one round, by name.
type Values map[string]float64

// Row is what was measured of a case: for each figure its values, round after round.
type Row struct {
	Case
	Values map[string][]float64 `json:"values"`
}

// Set is what a suite has measured, and where.
type Set struct {
	Date    string    `json:"date"`
	Machine string    `json:"machine"`
	Others  []float64 `json:"others"` // how much of the machine other programs used before each trial, percent
	Rows    []*Row    `json:"rows"`   // in the order in which contestants had their first turn
}

// Add appends the figures of a round.
func (s *Set) Add(c Case, values Values) {
	row := s.row(c)
	if row == nil {
		row = &Row{c, make(map[string][]float64)}
		s.Rows = append(s.Rows, row)
	}
	for name, value := range values {
		row.Values[name] = append(row.Values[name], significant(value))
	}
}

// significant rounds to five digits that count.
func significant(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	return short
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
type Summary struct {
	Median, Least, Most float64
	N                   int
}

// Summarize sums up values.
func Summarize(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Quantile(sorted, 0.5), Quantile(sorted, 0), Quantile(sorted, 1), len(sorted)}
}

// Interval is the median, and the range in which the true one lies with a certainty of
// 95 % or more, whatever the distribution. It leaves out as many of the least and of
// the greatest values as chance hardly ever puts on one side of the median.
func Interval(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	n, out := len(sorted), 0
	exactly := math.Pow(0.5, float64(n)) // the chance of just so many on one side, by the binomial law
	for atMost := exactly; atMost <= 0.025; atMost += exactly {
		out++
		exactly *= float64(n-out+1) / float64(out)
	}
	out = max(out-1, 0)
	all := Summarize(sorted)
	if n > 0 {
		all.Least, all.Most = sorted[out], sorted[n-1-out]
	}
	return all
}

// Quantile returns the value below which a part q of the sorted values lies,
// interpolated between neighbours.
func Quantile[T ~int64 | ~float64](sorted []T, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	part := at - float64(below)
	return float64(sorted[below])*(1-part) + float64(sorted[above])*part
}

// Write saves the set, a row on each line.
func (s *Set) Write(path string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	lines := strings.ReplaceAll(string(text), `{"who"`, "\n"+`{"who"`)
	return os.WriteFile(path, []byte(lines+"\n"), 0o644)
}

// Read reads what [Set.Write] wrote. Where there is no file, the error is
// fs.ErrNotExist.
func Read(path string) (*Set, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(Set)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Base(path), err)
	}
	return s, nil
}
