//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/stats"
)

// table is one for people, in Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table with its columns in line, all but the first to the
// right.
func (t *table) write(w io.Writer) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "%s\n\n", t.title)
	writeRow(w, t.head, widths)
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", max(3, width))
		if i > 0 {
			rule[i] = rule[i][1:] + ":"
		}
	}
	writeRow(w, rule, widths)
	for _, row := range t.rows {
		writeRow(w, row, widths)
	}
}

func writeRow(w io.Writer, cells []string, widths []int) {
	for i, cell := range cells {
		space := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		if i == 0 {
			fmt.Fprintf(w, "| %s%s ", cell, space)
			continue
		}
		fmt.Fprintf(w, "| %s%s ", space, cell)
	}
	fmt.Fprintln(w, "|")
}

// number writes a value with three digits that count, or all before the point.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) >= 100 || v == 0:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case math.Abs(v) >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case math.Abs(v) >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// spread writes a median with the least and the most.
func spread(s stats.Summary) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

// disturbance tells in how far the figures of a set can be trusted: what part of
// the machine other programs used meanwhile.
func disturbance(s results.Set) string {
	var values []float64
	for _, r := range s {
		if r.Metric == othersMetric {
			values = append(values, r.Value)
		}
	}
	text := fmt.Sprintf("Medians of %s runs, least and most in brackets.", runsOf(s))
	if len(values) == 0 {
		return text
	}
	others := stats.Summarize(values)
	return text + fmt.Sprintf(" Meanwhile other programs used %.0f %% of the machine (median; at most %.0f %%).", others.Median, others.Max)
}

// runsOf tells how often things were measured.
func runsOf(s results.Set) string {
	runs := make(map[results.Case]int)
	for _, r := range s {
		runs[r.Case] = max(runs[r.Case], r.Run)
	}
	counts := slices.Sorted(maps.Values(runs))
	if len(counts) == 0 {
		return "no"
	}
	least, most := counts[0], counts[len(counts)-1]
	if least == most {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}
