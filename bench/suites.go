package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/report"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

var suites = []suite{
	{"respond", measureRespond, respondTables, func(s *figures.Set) []report.Panel {
		return panels(s, plottedClients, 0, rate, work, late)
	}},
	{"proxy", measureProxy, proxyTables, func(s *figures.Set) []report.Panel {
		return append(panels(s, plottedClients, 0, rate, late), panels(s, plottedClients, halfMillisecond, rate, late)...)
	}},
	{"php", measurePHP, phpTables, func(s *figures.Set) []report.Panel {
		return append(panels(s, plottedClients, phpHold, rate), panels(s, 1, phpHold, wait)...)
	}},
}

// The conditions that the plots show.
const (
	plottedClients  = 32
	halfMillisecond = 500 * time.Microsecond
	phpHold         = 5 * time.Millisecond
)

// each lists conditions.
func each(clients []int, holds ...time.Duration) (all []figures.Case) {
	for _, hold := range holds {
		for _, n := range clients {
			all = append(all, figures.Case{Clients: n, Hold: hold})
		}
	}
	return all
}

// The suite respond puts the queue in front of the fastest handler there is, so all
// that it costs is seen.
func measureRespond(ctx context.Context, b *bench) error {
	c := contest{bench: b, contestants: caddies(b.caddy, "", ""), seconds: 1}
	return c.compare(ctx, b.rounds, each([]int{1, 16, plottedClients}, 0))
}

func respondTables(s *figures.Set) []report.Table {
	return []report.Table{report.Tabulate(s, "", s.Cases(rate), report.Label("clients, server", clientsAndWho),
		report.Spread("requests a second", rate), report.Ratio("of no queue", rate, caddyFree),
		report.Median("median wait, ms", wait), report.Spread("99th percentile", late),
		report.Spread("processor, µs", work), report.More("more than no queue", work, caddyFree))}
}

// The suite proxy puts the queues of Caddy and HAProxy in front of one backend.
const (
	haproxyFree   = "HAProxy, no queue"
	haproxyOne    = "HAProxy, maxconn 1"
	haproxyThread = "HAProxy, maxconn 1, one thread"
)

func measureProxy(ctx context.Context, b *bench) error {
	backend, err := server.StartBackend(ctx)
	if err != nil {
		return err
	}
	c := contest{bench: b, path: backend.Path, contestants: proxies(b.caddy, backend.Addr), seconds: 1}
	return c.compare(ctx, b.rounds, each([]int{1, plottedClients}, 0, halfMillisecond))
}

func proxies(caddy, upstream string) []contestant {
	haproxy := server.Config{Program: "haproxy", Upstream: upstream}
	one, thread := haproxy, haproxy
	one.One = true
	thread.One, thread.Threads = true, 1 // more get into each other's way at maxconn 1
	return append(caddies(caddy, upstream, ""),
		contestant{haproxyFree, haproxy}, contestant{haproxyOne, one}, contestant{haproxyThread, thread})
}

func proxyTables(s *figures.Set) (tables []report.Table) {
	for _, takes := range []time.Duration{0, halfMillisecond} {
		cases := slices.DeleteFunc(s.Cases(rate), func(c figures.Case) bool { return c.Hold != takes })
		tables = append(tables, report.Tabulate(s, fmt.Sprintf("The upstream takes %s.", hold(figures.Case{Hold: takes})), cases,
			report.Label("clients, server", clientsAndWho),
			report.Spread("requests a second", rate), report.Ratio("of HAProxy's `maxconn 1`", rate, haproxyOne),
			report.Median("median wait, ms", wait), report.Spread("99th percentile", late), report.Median("processor, µs", work)))
	}
	return tables
}

// The suite php has PHP scripts behind the queue: what users feel.
const (
	apacheFree = "Apache, no queue"
	modQoS     = "Apache, mod_qos"
)

func measurePHP(ctx context.Context, b *bench) error {
	php, err := server.StartPHP(ctx, b.home)
	if err != nil {
		return err
	}
	contestants := caddies(b.caddy, php.Addr, php.Dir)
	for _, name := range []string{haproxyFree, haproxyOne, apacheFree, modQoS} {
		rival := server.Config{Program: "haproxy", Upstream: php.Addr, PHP: php.Dir, One: name == haproxyOne || name == modQoS}
		if name == apacheFree || name == modQoS {
			rival.Program = "apache2"
		}
		contestants = append(contestants, contestant{name, rival})
	}
	// With mod_qos, a round of 32 clients takes more than a second and a half.
	c := contest{bench: b, path: php.Path, contestants: contestants, seconds: 3}
	return c.compare(ctx, b.rounds, each([]int{1, plottedClients}, phpHold))
}

func phpTables(s *figures.Set) []report.Table {
	without := map[string]string{caddyMemory: caddyFree, caddyFile: caddyFree, haproxyOne: haproxyFree, modQoS: apacheFree}
	more := report.Column{Head: "more than without its queue", Cell: func(s *figures.Set, c figures.Case) string {
		return report.More("", wait, without[c.Who]).Cell(s, c)
	}}
	return []report.Table{
		report.Tabulate(s, "A lone client: the response time, milliseconds.", under(s, wait, figures.Case{Clients: 1, Hold: phpHold}),
			report.Label("server", who), report.Spread("median", wait), more, report.Spread("99th percentile", late)),
		report.Tabulate(s, "32 clients.", under(s, rate, figures.Case{Clients: plottedClients, Hold: phpHold}),
			report.Label("server", who), report.Spread("requests a second", rate), report.Median("median wait, ms", wait), report.Median("99th percentile", late)),
	}
}

// The suite against has Caddy of a commit and of this checkout take turns.
var against = suite{"against", measureAgainst, againstTables, nil}

const suffixBefore = ", before"

func measureAgainst(ctx context.Context, b *bench) error {
	before, err := b.buildCommit(ctx, b.against)
	if err != nil {
		return err
	}
	c := contest{bench: b, seconds: 1}
	for i, then := range caddies(before, "", "") {
		then.name += suffixBefore
		c.contestants = append(c.contestants, then, caddies(b.caddy, "", "")[i])
	}
	return c.compare(ctx, b.rounds, each([]int{1, plottedClients}, 0))
}

func againstTables(s *figures.Set) []report.Table {
	cases := slices.DeleteFunc(s.Cases(work), func(c figures.Case) bool { return strings.HasSuffix(c.Who, suffixBefore) })
	ratio := report.Column{Head: "of before", Cell: func(s *figures.Set, c figures.Case) string {
		return report.Range(figures.Summarize(s.Ratios(c, work, c.Who+suffixBefore)))
	}}
	return []report.Table{report.Tabulate(s, "", cases, report.Label("clients, server", clientsAndWho),
		report.Spread("processor, µs", work), ratio)}
}
