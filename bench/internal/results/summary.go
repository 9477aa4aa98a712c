package results

import (
	"math"
	"slices"
	"strings"
)

// Summary sums up several measurements of one thing.
type Summary struct {
	Median, Min, Max float64
	N                int
}

// Summarize sums up values. The median of no values is not a number.
func Summarize(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Quantile(sorted, 0.5), Quantile(sorted, 0), Quantile(sorted, 1), len(sorted)}
}

// Quantile returns the value below which a part q of the sorted values lies,
// interpolated between neighbours. Without values it is not a number.
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

// Thousands separates the digits of a number: -12,345.
func Thousands(digits string) string {
	digits, negative := strings.CutPrefix(digits, "-")
	whole, part, _ := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if part != "" {
		whole += "." + part
	}
	if negative {
		return "-" + whole
	}
	return whole
}
