// Package webpage has what the pages of the handlers have in common.
package webpage

import (
	"strconv"
	"strings"
)

// QualityParam is the quality value among the parameters of a media range or a language; 1
// without one.
func QualityParam(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		if q, err := strconv.ParseFloat(value, 64); err == nil {
			return min(max(q, 0), 1)
		}
	}
	return 1
}
