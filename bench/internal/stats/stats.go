// Package stats draws few figures from many.
package stats

import (
	"math"
	"slices"
)

// Summary is what several measurements of one thing come to.
type Summary struct {
	Median, Min, Max float64
	N                int
}

// Summarize sums up values. Of none, the median is not a number.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Median: Quantile(sorted, 0.5), Min: sorted[0], Max: sorted[len(sorted)-1], N: len(sorted)}
}

// Quantile returns the value below which a part q of the sorted values lies. It
// interpolates between neighbours. Of no values, it is not a number.
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
