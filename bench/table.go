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
	"time"
	"unicode/utf8"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// table is one for people, in Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
}

// column is one column of a table of cases.
type column struct {
	head string
	cell func(results.Set, results.Case) string
}

// tabulate makes a table with a row for each case.
func tabulate(s results.Set, title string, cases []results.Case, columns ...column) table {
	t := table{title: title}
	for _, col := range columns {
		t.head = append(t.head, col.head)
	}
	for _, c := range cases {
		var row []string
		for _, col := range columns {
			row = append(row, col.cell(s, c))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// variant is another case that a case is compared with.
type variant func(results.Case) results.Case

func itself(c results.Case) results.Case { return c }

func withSubject(subject results.Subject) variant {
	return func(c results.Case) results.Case { c.Subject = subject; return c }
}

func withProcesses(n int) variant {
	return func(c results.Case) results.Case { c.Processes = n; return c }
}

func withWaiting(n int) variant {
	return func(c results.Case) results.Case { c.Waiting = n; return c }
}

// words is a column that tells the condition.
func words(head string, of func(results.Case) string) column {
	return column{head, func(_ results.Set, c results.Case) string { return of(c) }}
}

func subjectColumn(head string) column {
	return words(head, func(c results.Case) string { return c.Subject.String() })
}

func clientsColumn(head string) column {
	return words(head, func(c results.Case) string { return strconv.Itoa(c.Clients) })
}

func waitingColumn(head string) column {
	return words(head, func(c results.Case) string { return results.Thousands(strconv.Itoa(c.Waiting)) })
}

func holdColumn(head string) column {
	return words(head, func(c results.Case) string { return holdText(c.Hold) })
}

func medianColumn(head string, m results.Metric) column {
	return column{head, func(s results.Set, c results.Case) string { return number(s.Summary(c, m).Median) }}
}

func spreadColumn(head string, m results.Metric, of variant) column {
	return column{head, func(s results.Set, c results.Case) string { return spread(s.Summary(of(c), m)) }}
}

func ratioColumn(head string, m results.Metric, base variant) column {
	return column{head, func(s results.Set, c results.Case) string { return number(s.Ratio(c, base(c), m).Median) }}
}

// moreColumn is the difference of medians.
func moreColumn(head string, m results.Metric, base variant) column {
	return column{head, func(s results.Set, c results.Case) string {
		return number(s.Summary(c, m).Median - s.Summary(base(c), m).Median)
	}}
}

// write prints the table with aligned columns, all but the first to the right.
func (t table) write(w io.Writer) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(3, widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := []string{strings.Repeat("-", widths[0])}
	for _, width := range widths[1:] {
		rule = append(rule, strings.Repeat("-", width-1)+":")
	}
	fmt.Fprintf(w, "%s\n\n", t.title)
	for _, row := range append([][]string{t.head, rule}, t.rows...) {
		for i, cell := range row {
			width := widths[i]
			if i == 0 {
				width = -width
			}
			fmt.Fprintf(w, "| %*s ", width, cell)
		}
		fmt.Fprintln(w, "|")
	}
}

// number writes a value with three digits that count, or all before the point.
func number(v float64) string {
	digits := 3
	switch size := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case size >= 100 || v == 0:
		digits = 0
	case size >= 10:
		digits = 1
	case size >= 0.1:
		digits = 2
	}
	return results.Thousands(strconv.FormatFloat(v, 'f', digits, 64))
}

// spread writes a median with the least and the most.
func spread(s results.Summary) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

func holdText(hold time.Duration) string {
	if hold == 0 {
		return "no time"
	}
	return fmt.Sprintf("%g ms", milliseconds(hold))
}

// disturbance tells how far the figures of a set can be trusted: what part of
// the machine other programs used meanwhile.
func disturbance(s results.Set) string {
	runs := make(map[results.Case]int)
	var values []float64
	for _, r := range s {
		runs[r.Case] = max(runs[r.Case], r.Run)
		if r.Metric == othersMetric {
			values = append(values, r.Value)
		}
	}
	counts := slices.Sorted(maps.Values(runs))
	often := "no"
	if n := len(counts); n > 0 {
		if often = strconv.Itoa(counts[0]); counts[0] != counts[n-1] {
			often += fmt.Sprintf(" to %d", counts[n-1])
		}
	}
	text := fmt.Sprintf("Medians of %s runs, least and most in brackets.", often)
	if others := results.Summarize(values); others.N > 0 {
		text += fmt.Sprintf(" Meanwhile other programs used %.0f %% of the machine (median; at most %.0f %%).", others.Median, others.Max)
	}
	return text
}
