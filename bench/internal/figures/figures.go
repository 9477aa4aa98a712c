// Package figures keeps what was measured: one row for each figure of each run,
// in memory and as CSV.
package figures

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Case is one contestant under one set of conditions. Fields that do not apply are
// zero.
type Case struct {
	Suite      string `csv:"suite"`
	Group      string `csv:"group"` // of contestants that are compared with each other
	Contestant string `csv:"contestant"`
	FileSystem string `csv:"file_system"` // that its lock files are on
	Setting    string `csv:"setting"`     // of the contestant, or the part of it that was counted

	Processes int           `csv:"processes,omitempty"` // that share the work
	Clients   int           `csv:"clients,omitempty"`   // that ask at the same time, or goroutines
	Hold      time.Duration `csv:"hold_us,omitempty"`   // that each turn lasts
	Waiting   int           `csv:"waiting,omitempty"`   // in the queue all the time
	Bytes     int           `csv:"bytes,omitempty"`     // of a response
}

// Values are the figures of one run.
type Values map[Metric]float64

// Row is one figure of one run.
type Row struct {
	Case
	Run    int     `csv:"run"`
	Metric Metric  `csv:"metric"`
	Value  float64 `csv:"value"`
}

// Set is everything that was measured.
type Set []Row

// Add appends the figures of a run.
func (s *Set) Add(c Case, run int, values Values) {
	for _, m := range slices.Sorted(maps.Keys(values)) {
		*s = append(*s, Row{c, run, m, values[m]})
	}
}

// Of is what one suite has measured.
func (s Set) Of(suite string) (part Set) {
	for _, r := range s {
		if r.Suite == suite {
			part = append(part, r)
		}
	}
	return part
}

// Cases lists the cases that have a figure, in the order of their first runs.
func (s Set) Cases(m Metric) (cases []Case) {
	seen := make(map[Case]bool)
	for _, r := range s {
		if r.Metric == m && !seen[r.Case] {
			seen[r.Case] = true
			cases = append(cases, r.Case)
		}
	}
	return cases
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

// Ratio sums up the ratios of a figure to the same figure of another case, run by
// run: what disturbs the machine disturbs neighbours alike.
func (s Set) Ratio(c, base Case, m Metric) Summary { return Summarize(s.ratios(c, base, m)) }

// Interval is the median of those ratios, and the interval in which the true median
// lies with a certainty of 95 % or more, whatever the ratios' distribution: a number
// of the least and of the greatest are left out, as many as chance hardly ever puts on
// one side of it. Few ratios make it the whole range.
func (s Set) Interval(c, base Case, m Metric) Summary {
	sorted := slices.Sorted(slices.Values(s.ratios(c, base, m)))
	n, out := len(sorted), 0
	exactly := math.Pow(0.5, float64(n)) // the chance of just so many on one side, by the binomial law
	for atMost := exactly; atMost <= 0.025; atMost += exactly {
		out++
		exactly *= float64(n-out+1) / float64(out)
	}
	out = max(out-1, 0)
	all := Summarize(sorted)
	if n > 0 {
		all.Min, all.Max = sorted[out], sorted[n-1-out]
	}
	return all
}

func (s Set) ratios(c, base Case, m Metric) (ratios []float64) {
	bases := s.runs(base, m)
	for run, value := range s.runs(c, m) {
		if bases[run] != 0 {
			ratios = append(ratios, value/bases[run])
		}
	}
	return ratios
}

// Summary sums up several measurements of one thing. Those of nothing are not
// numbers.
type Summary struct {
	Median, Min, Max float64
	N                int
}

// Summarize sums up values.
func Summarize(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Quantile(sorted, 0.5), Quantile(sorted, 0), Quantile(sorted, 1), len(sorted)}
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

// Milliseconds is a duration as a figure.
func Milliseconds[T ~int64 | ~float64](ns T) float64 { return float64(ns) / float64(time.Millisecond) }

// Microseconds is a duration as a figure.
func Microseconds[T ~int64 | ~float64](ns T) float64 { return float64(ns) / float64(time.Microsecond) }
