package main

import (
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/report"
)

// promise is a figure that was promised: at least the bound, or at most.
type promise struct {
	what    string
	suite   string
	figure  string
	of      figures.Case
	base    string // the contestant whose figure it is divided by, if any
	atLeast bool
	bound   float64
}

var (
	fileRespond = figures.Case{Who: caddyFile, Clients: plottedClients}
	fileProxy   = figures.Case{Who: caddyFile, Clients: plottedClients, Hold: halfMillisecond}
	relayed     = figures.Case{Hold: halfMillisecond}
)

var promises = []promise{
	{"`respond` behind lock files: requests a second, of no queue", "respond", rate, fileRespond, caddyFree, true, 0.65},
	{"upstream takes no time: requests a second, of HAProxy's `maxconn 1`", "proxy", rate, fileRespond, haproxyOne, true, 1},
	{"the same: 99th percentile", "proxy", late, fileRespond, haproxyOne, false, 1},
	{"upstream takes 0.5 ms: requests a second, of HAProxy's `maxconn 1`", "proxy", rate, fileProxy, haproxyOne, true, 1},
	{"the same: 99th percentile", "proxy", late, fileProxy, haproxyOne, false, 1},
	{"hand-over between two processes, median, µs", "handover", handOver, relayed, "", false, 100},
	{"the same: 99th percentile, µs", "handover", handOverLate, relayed, "", false, 1000},
}

// promised compares what was measured with what was promised.
func promised(sets map[string]*figures.Set) report.Table {
	t := report.Table{Head: []string{"figure, 32 clients", "promised", "measured", "met"}}
	for _, p := range promises {
		set := sets[p.suite]
		if set == nil {
			continue
		}
		measured := set.Of(p.of, p.figure)
		if p.base != "" {
			measured = figures.Summarize(set.Ratios(p.of, p.figure, p.base))
		}
		bound, met := "at most ", measured.Median <= p.bound
		if p.atLeast {
			bound, met = "at least ", measured.Median >= p.bound
		}
		t.Rows = append(t.Rows, []string{p.what, bound + report.Number(p.bound), report.Range(measured), map[bool]string{true: "yes", false: "**no**"}[met]})
	}
	return t
}
