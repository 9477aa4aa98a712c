//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/orderly-http/caddy-orderly/bench/internal/chart"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
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
	cell func(figures.Set, figures.Case) string
}

// tabulate makes a table with a row for each case.
func tabulate(s figures.Set, title string, cases []figures.Case, columns ...column) table {
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

// label is a column that tells the case.
func label(head string, of func(figures.Case) string) column {
	return column{head, func(_ figures.Set, c figures.Case) string { return of(c) }}
}

func median(head string, m figures.Metric) column {
	return column{head, func(s figures.Set, c figures.Case) string { return number(s.Summary(c, m).Median) }}
}

func spread(head string, m figures.Metric) column {
	return column{head, func(s figures.Set, c figures.Case) string { return rangeText(s.Summary(c, m)) }}
}

// variant is another case that a case is compared with.
type variant func(figures.Case) figures.Case

// at is a column of another case.
func at(v variant, col column) column {
	return column{col.head, func(s figures.Set, c figures.Case) string { return col.cell(s, v(c)) }}
}

func ratio(head string, m figures.Metric, base variant) column {
	return column{head, func(s figures.Set, c figures.Case) string { return number(s.Ratio(c, base(c), m).Median) }}
}

// more is the difference of medians.
func more(head string, m figures.Metric, base variant) column {
	return column{head, func(s figures.Set, c figures.Case) string {
		return number(s.Summary(c, m).Median - s.Summary(base(c), m).Median)
	}}
}

// clients, waiting, hold and name are labels.
func clients(c figures.Case) string { return english.Sprint(c.Clients) }
func waiting(c figures.Case) string { return english.Sprint(c.Waiting) }

func hold(c figures.Case) string {
	if c.Hold == 0 {
		return "no time"
	}
	return fmt.Sprintf("%g ms", figures.Milliseconds(c.Hold))
}

// name tells what a contestant is.
func name(c figures.Case) string {
	text := c.Contestant
	if c.Group != "" {
		text = c.Group + ", " + text
	}
	if c.FileSystem != "" {
		text += " on " + c.FileSystem
	}
	if c.Setting != "" {
		text += ", " + c.Setting
	}
	return text
}

// conditions tells all of a case, for reports of progress.
func conditions(c figures.Case) string {
	return fmt.Sprintf("%s: %d processes, %d clients, %d waiting, %d bytes, %v inside", name(c), c.Processes, c.Clients, c.Waiting, c.Bytes, c.Hold)
}

// String writes the table with aligned columns, all but the first to the right.
func (t table) String() string {
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
	var w strings.Builder
	fmt.Fprintf(&w, "%s\n\n", t.title)
	for _, row := range append([][]string{t.head, rule}, t.rows...) {
		for i, cell := range row {
			width := widths[i]
			if i == 0 {
				width = -width
			}
			fmt.Fprintf(&w, "| %*s ", width, cell)
		}
		w.WriteString("|\n")
	}
	return w.String()
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
	return english.Sprintf("%.*f", digits, v)
}

// english separates the thousands of numbers: -12,345.
var english = message.NewPrinter(language.English)

func rangeText(s figures.Summary) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

// inOrder lists the cases that have a figure: by what is asked for first, and then in
// the order in which contestants first had a turn.
func inOrder(s figures.Set, m figures.Metric, first func(a, b figures.Case) int) []figures.Case {
	cases := s.Cases(m)
	order := make(map[string]int)
	for i, c := range slices.Backward(cases) {
		order[name(c)] = i
	}
	slices.SortStableFunc(cases, func(a, b figures.Case) int { return cmp.Or(first(a, b), order[name(a)]-order[name(b)]) })
	return cases
}

func byConditions(a, b figures.Case) int {
	return cmp.Or(cmp.Compare(a.Hold, b.Hold), cmp.Compare(a.Bytes, b.Bytes), a.Clients-b.Clients)
}

// only keeps some of the cases.
func only(cases []figures.Case, wanted func(figures.Case) bool) []figures.Case {
	return slices.DeleteFunc(cases, func(c figures.Case) bool { return !wanted(c) })
}

// onDisk is the contestant that keeps lock files on a disk, whatever its file system.
func onDisk(s figures.Set, m figures.Metric, contestantName string, conditions figures.Case) figures.Case {
	for _, c := range s.Cases(m) {
		if c.Contestant == contestantName && c.FileSystem != machine.Tmpfs {
			conditions.FileSystem = c.FileSystem
		}
	}
	conditions.Contestant = contestantName
	return conditions
}

// serverTable has a row for each server with each number of clients.
func serverTable(s figures.Set, title, head, base string, held time.Duration) table {
	cases := only(inOrder(s, figures.Rate, byConditions), func(c figures.Case) bool { return c.Hold == held })
	return tabulate(s, title, cases,
		column{"clients, server", func(s figures.Set, c figures.Case) string {
			text := clients(c) + ", " + name(c)
			if stalled := s.Summary(c, figures.Stalled).N; stalled > 0 {
				text += fmt.Sprintf(" (%d more runs stood still)", stalled)
			}
			return text
		}},
		spread("requests a second", figures.Rate),
		ratio(head, figures.Rate, instead(base)),
		median("median wait, ms", figures.Median),
		spread("99th percentile, ms", figures.Late))
}

// instead is another contestant under the same conditions.
func instead(contestantName string) variant {
	return func(c figures.Case) figures.Case { c.Contestant, c.FileSystem = contestantName, ""; return c }
}

func holds(s figures.Set) (all []time.Duration) {
	for _, c := range s.Cases(figures.Rate) {
		all = append(all, c.Hold)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// panel draws a figure of all cases that are wanted against x, a curve for each
// contestant.
func panel(s figures.Set, m figures.Metric, title, xTitle string, x func(figures.Case) int, wanted func(figures.Case) bool) chart.Panel {
	p := chart.Panel{Title: title, X: xTitle}
	for _, c := range inOrder(s, m, func(a, b figures.Case) int { return x(a) - x(b) }) {
		if !wanted(c) {
			continue
		}
		i := slices.IndexFunc(p.Curves, func(curve chart.Curve) bool { return curve.Name == name(c) })
		if i < 0 {
			i = len(p.Curves)
			p.Curves = append(p.Curves, chart.Curve{Name: name(c)})
		}
		y := s.Summary(c, m)
		p.Curves[i].Points = append(p.Curves[i].Points, chart.Point{X: float64(x(c)), Y: y.Median, Low: y.Min, High: y.Max})
	}
	return p
}

// overClients is a row of panels of servers, one for each hold.
func overClients(s figures.Set, m figures.Metric, title string) (row []chart.Panel) {
	for _, held := range holds(s) {
		heading := title
		if len(holds(s)) > 1 {
			heading += "; the backend takes " + hold(figures.Case{Hold: held})
		}
		row = append(row, panel(s, m, heading, "clients", func(c figures.Case) int { return c.Clients }, func(c figures.Case) bool { return c.Hold == held }))
	}
	return row
}
