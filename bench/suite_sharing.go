//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite sharing has one process and four keep one queue.
var sharingSuite = suite{name: "sharing", measure: measureSharing, tables: sharingTables}

// sharers is how many processes share one directory.
const sharers = 4

func measureSharing(ctx context.Context, b *workbench) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	c := &contest{workbench: b, backend: backend}
	upstream := reverseProxy(backend)
	for _, n := range []int{1, sharers} {
		c.contestants = append(c.contestants, b.caddy(caddyFree, upstream, n), b.serializing(b.shm, upstream, n), b.serializing(b.disk, upstream, n))
	}
	clients := []int{32}
	if !b.quick {
		clients = append(clients, 256)
	}
	return c.run(ctx, conditions(clients, 0, 500*time.Microsecond))
}

func sharingTables(s results.Set) []table {
	many := withProcesses(sharers)
	cases := slices.DeleteFunc(byClients(s), func(c results.Case) bool { return c.Processes != 1 })
	return []table{tabulate(s, fmt.Sprintf("One Caddy and %d that share a directory.", sharers), cases,
		subjectColumn("server"), clientsColumn("clients"), holdColumn("backend takes"),
		spreadColumn("one process, requests a second", rateMetric, itself),
		spreadColumn(fmt.Sprintf("%d processes", sharers), rateMetric, many),
		column{"ratio", func(s results.Set, c results.Case) string { return number(s.Ratio(many(c), c, rateMetric).Median) }},
	)}
}
