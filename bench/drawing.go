//go:build linux

package main

import (
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/plots"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// drawing is a picture that can be saved as a PNG file.
type drawing interface{ Save(path string) error }

// styles give a subject the same look in all figures. Subjects that are not
// listed keep lock files.
var styles = map[string]int{
	caddyFree.Name: 0, channelQueue.Name: 0,
	caddyMemory.Name: 1, memoryQueue.Name: 1,
	predecessorQueue.Name: 4, haproxyOne.Name: 4,
	haproxyFree.Name: 5, haproxyThread.Name: 6,
}

func style(s results.Subject) int {
	if style, ok := styles[s.Name]; ok {
		return style
	}
	if s.FileSystem == tmpfs {
		return 2
	}
	return 3
}

// panel draws a figure of all cases that are wanted against x.
func panel(s results.Set, m results.Metric, title, xTitle string, x func(results.Case) int, wanted func(results.Case) bool) plots.Panel {
	p := plots.Panel{Title: title, X: xTitle}
	subjects := s.Subjects(m)
	slices.SortStableFunc(subjects, func(a, b results.Subject) int { return style(a) - style(b) })
	for _, subject := range subjects {
		curve := plots.Curve{Name: subject.String(), Style: style(subject)}
		for _, c := range s.Cases(m) {
			if c.Subject == subject && wanted(c) {
				y := s.Summary(c, m)
				curve.Points = append(curve.Points, plots.Point{X: float64(x(c)), Y: y.Median, Low: y.Min, High: y.Max})
			}
		}
		slices.SortFunc(curve.Points, func(a, b plots.Point) int { return int(a.X - b.X) })
		p.Curves = append(p.Curves, curve)
	}
	return p
}

// clientsPanel is a panel of servers, with marks where they were measured.
func clientsPanel(s results.Set, m results.Metric, title string, wanted func(results.Case) bool) plots.Panel {
	p := panel(s, m, title, "clients", func(c results.Case) int { return c.Clients }, wanted)
	for _, c := range s.Cases(m) {
		p.XTicks = append(p.XTicks, float64(c.Clients))
	}
	slices.Sort(p.XTicks)
	p.XTicks = slices.Compact(p.XTicks)
	return p
}

func everything(results.Case) bool { return true }
