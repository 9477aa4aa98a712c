// Package webpage has what the pages of the handlers have in common.
package webpage

import (
	"iter"
	"strconv"
	"strings"
)

// Qualities yields what a header such as Accept lists, in lower case, each with its quality
// value; 1 without one.
func Qualities(values []string) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for text := range strings.SplitSeq(strings.ToLower(strings.Join(values, ",")), ",") {
			name, params, _ := strings.Cut(text, ";")
			if !yield(strings.TrimSpace(name), quality(params)) {
				return
			}
		}
	}
}

func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if q, err := strconv.ParseFloat(value, 64); name == "q" && err == nil {
			return min(max(q, 0), 1)
		}
	}
	return 1
}
