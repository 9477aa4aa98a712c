// Package report writes figures for people: tables and bars, in a document.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// Table is one for people, in Markdown.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// Column is one column of a table of cases.
type Column struct {
	Head string
	Cell func(*figures.Set, figures.Case) string
}

// Tabulate makes a table with a row for each case.
func Tabulate(s *figures.Set, title string, cases []figures.Case, columns ...Column) Table {
	t := Table{Title: title}
	for _, col := range columns {
		t.Head = append(t.Head, col.Head)
	}
	for _, c := range cases {
		var row []string
		for _, col := range columns {
			row = append(row, col.Cell(s, c))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Label is a column that names the case.
func Label(head string, of func(figures.Case) string) Column {
	return Column{head, func(_ *figures.Set, c figures.Case) string { return of(c) }}
}

// Median is a column of a figure's medians.
func Median(head, figure string) Column {
	return Column{head, func(s *figures.Set, c figures.Case) string { return Number(s.Of(c, figure).Median) }}
}

// Spread is a column of medians with the least and the most.
func Spread(head, figure string) Column {
	return Column{head, func(s *figures.Set, c figures.Case) string { return Range(s.Of(c, figure)) }}
}

// Ratio is a column of ratios to another contestant.
func Ratio(head, figure, base string) Column {
	return Column{head, func(s *figures.Set, c figures.Case) string {
		return Number(figures.Summarize(s.Ratios(c, figure, base)).Median)
	}}
}

// More is a column of differences to another contestant's median.
func More(head, figure, base string) Column {
	return Column{head, func(s *figures.Set, c figures.Case) string {
		other := c
		other.Who = base
		return Number(s.Of(c, figure).Median - s.Of(other, figure).Median)
	}}
}

// String writes the table with aligned columns.
func (t Table) String() string {
	var text strings.Builder
	if t.Title != "" {
		fmt.Fprintf(&text, "%s\n\n", t.Title)
	}
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	rule := append([]string{"---"}, slices.Repeat([]string{"---:"}, len(t.Head)-1)...)
	for _, row := range append([][]string{t.Head, rule}, t.Rows...) {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	_ = w.Flush() // into memory
	return text.String()
}

// Number writes a value with three digits that count, or all before the point.
func Number(v float64) string {
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
	return english.Sprintf("%.*f", digits, v)
}

// english separates the thousands of numbers: -12,345.
var english = message.NewPrinter(language.English)

// Range writes a median with the least and the most.
func Range(s figures.Summary) string {
	if math.IsNaN(s.Median) {
		return "–"
	}
	return fmt.Sprintf("%s (%s to %s)", Number(s.Median), Number(s.Least), Number(s.Most))
}
