// Package webpage has what the pages of the handlers have in common.
package webpage

import (
	"slices"
	"strconv"
	"strings"
)

// Quality is a type's quality value, 0 to 1, by the most specific media range in an
// Accept header.
func Quality(accept []string, mime string) (q float64) {
	kind, _, _ := strings.Cut(mime, "/")
	best := 0
	for _, text := range strings.Split(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(text, ";")
		specific := slices.Index([]string{"*/*", kind + "/*", mime}, strings.ToLower(strings.TrimSpace(name))) + 1
		if specific > best {
			best, q = specific, QualityParam(params)
		}
	}
	return q
}

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
