package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/report"
)

// titles say of each figure what it is, and what is better.
var titles = map[string]string{
	rate: "Requests a second (more is better)",
	wait: "Response time, ms (less is better)",
	late: "99th percentile of the wait, ms (less is better)",
	work: "Processor time of the server for a request, µs (less is better)",
}

// panels draw figures under some conditions.
func panels(s *figures.Set, clients int, takes time.Duration, names ...string) (all []report.Panel) {
	at := figures.Case{Clients: clients, Hold: takes}
	for _, name := range names {
		title := fmt.Sprintf("%s; clients: %d", titles[name], clients)
		if takes > 0 {
			title += "; upstream takes " + hold(at)
		}
		all = append(all, report.Panel{Title: title, Bars: report.Bars(s, name, under(s, name, at), isOurs)})
	}
	return all
}

// under lists the cases that have a figure under some conditions.
func under(s *figures.Set, figure string, at figures.Case) []figures.Case {
	return slices.DeleteFunc(s.Cases(figure), func(c figures.Case) bool { return c.Clients != at.Clients || c.Hold != at.Hold })
}

func isOurs(c figures.Case) bool { return c.Who == caddyMemory || c.Who == caddyFile }

func who(c figures.Case) string { return c.Who }

func clientsAndWho(c figures.Case) string { return fmt.Sprintf("%d, %s", c.Clients, c.Who) }

func hold(c figures.Case) string {
	if c.Hold == 0 {
		return "no time"
	}
	return fmt.Sprintf("%g ms", c.Hold.Seconds()*1e3)
}

// circumstances says when a suite was measured, and how often.
func circumstances(s *figures.Set) string {
	rounds := 0
	for _, row := range s.Rows {
		for _, values := range row.Values {
			rounds = max(rounds, len(values))
		}
	}
	return fmt.Sprintf("%s: medians of %d rounds, least and most in brackets.\n", s.Date, rounds)
}
