//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/plots"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/stats"
)

// style gives a subject the same look in all figures.
func style(subject string) int {
	switch {
	case subject == caddyFree, subject == channelSubject:
		return 0
	case subject == caddyMemory, subject == memorySubject:
		return 1
	case strings.HasPrefix(subject, predecessorPrefix), subject == haproxyOne:
		return 4
	case strings.HasSuffix(subject, tmpfsFileSystem):
		return 2
	case subject == haproxyFree:
		return 5
	case subject == haproxyThread:
		return 6
	default:
		return 3
	}
}

// curves draws a figure of all cases that are wanted against x.
func curves(s results.Set, metric string, x func(results.Case) int, wanted func(results.Case) bool) (all []plots.Curve) {
	subjects := s.Subjects(metric)
	slices.SortStableFunc(subjects, func(a, b string) int { return style(a) - style(b) })
	for _, subject := range subjects {
		curve := plots.Curve{Name: subject, Style: style(subject)}
		for _, c := range s.Cases(metric) {
			if c.Subject == subject && wanted(c) {
				curve.Points = append(curve.Points, point(float64(x(c)), s.Summary(c, metric)))
			}
		}
		slices.SortFunc(curve.Points, func(a, b plots.Point) int { return int(a.X - b.X) })
		all = append(all, curve)
	}
	return all
}

func point(x float64, s stats.Summary) plots.Point {
	return plots.Point{X: x, Y: s.Median, Low: s.Min, High: s.Max}
}

func clientsOf(c results.Case) int { return c.Clients }
func waitingOf(c results.Case) int { return c.Waiting }

func everything(results.Case) bool { return true }

func drawRespond(s results.Set, dir string) error {
	panel := func(metric, title string) plots.Panel {
		return plots.Panel{Title: title, X: "clients", Curves: curves(s, metric, clientsOf, everything), XTicks: ticks(s, metric, clientsOf)}
	}
	return plots.Figure{
		Title: "respond in Caddy: free, and behind the queue",
		Panels: [][]plots.Panel{{
			panel(rateMetric, "requests a second"),
			panel(lateMetric, "99th percentile of the wait, ms"),
		}},
	}.Save(filepath.Join(dir, "respond.png"))
}

func drawProxy(s results.Set, dir string) error {
	row := func(metric, title string) (panels []plots.Panel) {
		for _, hold := range holdsOf(s) {
			at := func(c results.Case) bool { return c.Hold == hold }
			panels = append(panels, plots.Panel{
				Title: fmt.Sprintf("%s; the backend takes %s", title, holdText(hold)), X: "clients",
				Curves: curves(s, metric, clientsOf, at), XTicks: ticks(s, metric, clientsOf),
			})
		}
		return panels
	}
	return plots.Figure{
		Title: "In front of one backend: Caddy and HAProxy, free and one at a time",
		Panels: [][]plots.Panel{
			row(rateMetric, "requests a second"),
			row(lateMetric, "99th percentile of the wait, ms"),
		},
	}.Save(filepath.Join(dir, "proxy.png"))
}

// ticks are the values that were measured.
func ticks(s results.Set, metric string, x func(results.Case) int) (values []float64) {
	for _, c := range s.Cases(metric) {
		values = append(values, float64(x(c)))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

func drawWaiting(s results.Set, dir string) error {
	return plots.Figure{
		Title: "What a turn costs while others wait",
		Panels: [][]plots.Panel{{{
			Title: "time of a turn, µs", X: "waiting",
			Curves: curves(s, costMetric, waitingOf, everything),
		}, {
			Title: "processor's time of a turn, µs", X: "waiting",
			Curves: curves(s, workMetric, waitingOf, everything),
		}, {
			Title: "from Leave to the next Enter, median, µs", X: "waiting",
			Curves: curves(s, handOverMetric, waitingOf, everything),
		}}},
	}.Save(filepath.Join(dir, "waiting.png"))
}

func drawIDs(s results.Set, dir string) error {
	b := plots.Bars{Title: "Making an ID as text", X: "nanoseconds, one after another (less is better)", Legend: [2]string{"Orderly", "others"}}
	for _, c := range bySpeed(s) {
		took := s.Summary(c, idMetric)
		b.Bars = append(b.Bars, plots.Bar{
			Name: c.Subject, Value: took.Median, Low: took.Min, High: took.Max, Ours: isOurs(c.Subject),
			Note: fmt.Sprintf("%.0f", took.Median),
		})
	}
	return b.Save(filepath.Join(dir, "ids.png"))
}

// isOurs reports whether a maker of IDs is one of this project.
func isOurs(maker string) bool {
	return slices.ContainsFunc([]string{"txid", "unique_id", "sharded_id", "call_number"}, func(name string) bool {
		return strings.HasPrefix(maker, name)
	})
}
