package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/relay"
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
	{"handover", measureHandover, handoverTables, nil},
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
	c := contest{bench: b, upstream: backend, contestants: proxies(b.caddy, backend.Addr), seconds: 1}
	return c.compare(ctx, b.rounds, each([]int{1, plottedClients}, 0, halfMillisecond))
}

func proxies(caddy, upstream string) []contestant {
	haproxy := server.Config{Program: "haproxy", Upstream: upstream}
	one, thread := haproxy, haproxy
	one.One = true
	thread.One, thread.Threads = true, 1 // more get into each other's way at maxconn 1
	return append(caddies(caddy, upstream, ""),
		contestant{haproxyFree, haproxy, false}, contestant{haproxyOne, one, true}, contestant{haproxyThread, thread, true})
}

func proxyTables(s *figures.Set) (tables []report.Table) {
	for _, takes := range []time.Duration{0, halfMillisecond} {
		cases := slices.DeleteFunc(s.Cases(rate), func(c figures.Case) bool { return c.Hold != takes })
		tables = append(tables, report.Tabulate(s, fmt.Sprintf("The upstream takes %s.", hold(figures.Case{Hold: takes})), cases,
			report.Label("clients, server", clientsAndWho),
			report.Spread("requests a second", rate), report.Ratio("of HAProxy's `maxconn 1`", rate, haproxyOne),
			report.Median("median wait, ms", wait), report.Spread("99th percentile", late), report.Median("processor, µs", work),
			report.Median("idle, µs, median", gap)))
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
		rival := contestant{name: name, serial: name == haproxyOne || name == modQoS}
		rival.config = server.Config{Program: "haproxy", Upstream: php.Addr, PHP: php.Dir, One: rival.serial}
		if name == apacheFree || name == modQoS {
			rival.config.Program = "apache2"
		}
		contestants = append(contestants, rival)
	}
	// With mod_qos, a round of 32 clients takes more than a second and a half.
	c := contest{bench: b, upstream: php, contestants: contestants, seconds: 3}
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
		report.Tabulate(s, "32 clients: how idle PHP is between two scripts.", under(s, gap, figures.Case{Clients: plottedClients, Hold: phpHold}),
			report.Label("server", who), report.Spread("idle, µs, median", gap),
			report.Spread("requests a second", rate), report.Median("median wait, ms", wait), report.Median("99th percentile", late)),
	}
}

// The suite handover passes a turn between two processes that use the library.
const (
	handOver     = "hand-over µs"
	handOverLate = "hand-over p99 µs"
)

func measureHandover(ctx context.Context, b *bench) error {
	var trials []trial
	for i, hold := range []time.Duration{0, halfMillisecond} {
		laps := []int{20_000, 2000}[i] // with fewer, one process may be done before the other begins
		trials = append(trials, trial{figures.Case{Hold: hold}, func(ctx context.Context) (figures.Values, error) {
			dir, err := os.MkdirTemp(b.home, "relay-")
			if err != nil {
				return nil, fmt.Errorf("making a directory for lock files: %w", err)
			}
			took, err := relay.Relay{Dir: dir, Hold: hold, Laps: laps}.Run(ctx)
			return figures.Values{handOver: figures.Quantile(took, 0.5) / 1e3, handOverLate: figures.Quantile(took, 0.99) / 1e3}, err
		}})
	}
	return b.alternate(ctx, b.rounds, trials)
}

func handoverTables(s *figures.Set) []report.Table {
	return []report.Table{report.Tabulate(s, "", s.Cases(handOver), report.Label("a turn lasts", hold),
		report.Spread("hand-over, µs, median", handOver), report.Spread("99th percentile", handOverLate))}
}
