//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

func respondTables(s results.Set) []table {
	t := table{title: "`respond` in Caddy, behind the queue and free.", head: serverHead("of Caddy, free")}
	addServers(&t, s, 0, caddyFree)
	return []table{t}
}

func proxyTables(s results.Set) (tables []table) {
	for _, hold := range holdsOf(s) {
		t := table{
			title: fmt.Sprintf("`reverse_proxy` to a backend that takes %s.", holdText(hold)),
			head:  serverHead("of HAProxy's `maxconn 1`"),
		}
		addServers(&t, s, hold, haproxyOne)
		tables = append(tables, t)
	}
	return tables
}

func serverHead(ratio string) []string {
	return []string{"clients, server", "requests a second", ratio, "median wait, ms", "99th percentile, ms"}
}

// addServers adds a row for each server with each number of clients.
func addServers(t *table, s results.Set, hold time.Duration, base string) {
	for _, c := range byClients(s) {
		if c.Hold != hold {
			continue
		}
		b := c
		b.Subject = base
		name := fmt.Sprintf("%s, %s", thousands(fmt.Sprint(c.Clients)), c.Subject)
		if stalled := s.Summary(c, stalledMetric).N; stalled > 0 {
			name += fmt.Sprintf(" (%d more runs stood still)", stalled)
		}
		t.add(name, spread(s.Summary(c, rateMetric)),
			number(s.Ratio(c, b, rateMetric).Median), number(s.Summary(c, medianMetric).Median), spread(s.Summary(c, lateMetric)))
	}
}

// byClients lists the cases in the order of clients and of subjects as they
// were first measured; the contestants take turns, so that is not the order of
// the records.
func byClients(s results.Set) []results.Case {
	cases := s.Cases(rateMetric)
	subjects := s.Subjects(rateMetric)
	slices.SortStableFunc(cases, func(a, b results.Case) int {
		if a.Hold != b.Hold {
			return int(a.Hold - b.Hold)
		}
		if a.Clients != b.Clients {
			return a.Clients - b.Clients
		}
		if a.Subject != b.Subject {
			return slices.Index(subjects, a.Subject) - slices.Index(subjects, b.Subject)
		}
		return a.Processes - b.Processes
	})
	return cases
}

func holdsOf(s results.Set) (holds []time.Duration) {
	for _, c := range s.Cases(rateMetric) {
		if !slices.Contains(holds, c.Hold) {
			holds = append(holds, c.Hold)
		}
	}
	slices.Sort(holds)
	return holds
}

func holdText(hold time.Duration) string {
	if hold == 0 {
		return "no time"
	}
	return fmt.Sprintf("%g ms", milliseconds(float64(hold)))
}

func sharingTables(s results.Set) (tables []table) {
	t := table{
		title: fmt.Sprintf("One Caddy and %d that share a directory.", sharers),
		head:  []string{"server", "clients", "backend takes", "one process, requests a second", fmt.Sprintf("%d processes", sharers), "ratio"},
	}
	for _, c := range byClients(s) {
		if c.Processes != 1 {
			continue
		}
		many := c
		many.Processes = sharers
		t.add(c.Subject, fmt.Sprint(c.Clients), holdText(c.Hold), spread(s.Summary(c, rateMetric)),
			spread(s.Summary(many, rateMetric)), number(s.Ratio(many, c, rateMetric).Median))
	}
	return []table{t}
}

func waitingTables(s results.Set) []table {
	t := table{
		title: "The library alone: a turn while so many wait, microseconds. A turn is a ticket made, the turn handed on and the ticket gone.",
		head:  []string{"queue", "waiting", "cost of a turn", "of that with 50", "processor's time", "of that with 50", "from Leave to the next Enter, median", "99th percentile"},
	}
	for _, subject := range s.Subjects(costMetric) {
		for _, c := range s.Cases(costMetric) {
			if c.Subject != subject {
				continue
			}
			few := results.Case{Subject: subject, Waiting: 50}
			t.add(subject, thousands(fmt.Sprint(c.Waiting)), spread(s.Summary(c, costMetric)), number(s.Ratio(c, few, costMetric).Median),
				spread(s.Summary(c, workMetric)), number(s.Ratio(c, few, workMetric).Median),
				spread(s.Summary(c, handOverMetric)), number(s.Summary(c, lateHandOver).Median))
		}
	}
	return []table{t}
}

func handoverTables(s results.Set) []table {
	t := table{
		title: "From one who leaves to the next, who waited for it, microseconds.",
		head:  []string{"hand-over", "each stays", "median", "99th percentile", "of that within one process", "of a byte's through a pipe"},
	}
	for _, c := range s.Cases(handOverMetric) {
		within := results.Case{Subject: strings.Replace(c.Subject, betweenSubject, withinSubject, 1), Processes: 1, Hold: c.Hold}
		pipe := results.Case{Subject: pipeSubject, Processes: 2, Hold: c.Hold}
		t.add(c.Subject, holdText(c.Hold), spread(s.Summary(c, handOverMetric)), spread(s.Summary(c, lateHandOver)),
			number(s.Ratio(c, within, handOverMetric).Median), number(s.Ratio(c, pipe, handOverMetric).Median))
	}
	return []table{t}
}

func collectorTables(s results.Set) []table {
	t := table{
		title: "Requests a second with a garbage collector that comes less often, in front of what takes no time.",
		head:  []string{"behind it, server", "clients", "as by default", lateCollector, "ratio"},
	}
	for _, c := range byClients(s) {
		late := c
		late.Subject += withLate
		if !strings.HasSuffix(c.Subject, withLate) {
			t.add(c.Subject, fmt.Sprint(c.Clients), spread(s.Summary(c, rateMetric)), spread(s.Summary(late, rateMetric)), spread(s.Ratio(late, c, rateMetric)))
		}
	}
	return []table{t}
}

func headersTables(s results.Set) []table {
	t := table{
		title: "An ID in a header of each response, 32 clients.",
		head:  []string{"server, X-Request-Id", "requests a second", "of the same without"},
	}
	for _, subject := range []string{"Caddy", "nginx", "apache2"} {
		for _, c := range byClients(s) {
			base := c
			base.Subject = subject + ", " + noHeader
			if strings.HasPrefix(c.Subject, subject+",") {
				ratio := s.Ratio(c, base, rateMetric)
				t.add(c.Subject, spread(s.Summary(c, rateMetric)), spread(ratio))
			}
		}
	}
	return []table{t}
}

func idsTables(s results.Set) []table {
	t := table{
		title: "Making an ID as text, one after another.",
		head:  []string{"maker", "nanoseconds", "of rs/xid's", "allocations", "two cores make, times"},
	}
	for _, c := range bySpeed(s) {
		t.add(c.Subject, spread(s.Summary(c, idMetric)), number(s.Summary(c, idRatioMetric).Median),
			number(s.Summary(c, idAllocsMetric).Median), number(s.Summary(c, idScalingMetric).Median))
	}
	return []table{t}
}

// bySpeed lists the makers of IDs, the fastest first.
func bySpeed(s results.Set) []results.Case {
	cases := s.Cases(idMetric)
	slices.SortFunc(cases, func(a, b results.Case) int {
		return int(1000 * (s.Summary(a, idMetric).Median - s.Summary(b, idMetric).Median))
	})
	return cases
}

func costTables(s results.Set) []table {
	return []table{libraryTable(s), callsTable(s), instructionsTable(s), requestsTable(s), crowdTable(s)}
}

func libraryTable(s results.Set) table {
	t := table{
		title: "The library's memory.",
		head:  []string{"queue", "callers", "allocations of a turn", "bytes", "one who waits: heap, bytes", "stack, bytes"},
	}
	for _, c := range s.Cases(heapMetric) {
		t.add(c.Subject, fmt.Sprint(c.Clients), number(s.Summary(c, allocsMetric).Median), number(s.Summary(c, allocatedMetric).Median),
			spread(s.Summary(c, heapMetric)), number(s.Summary(c, stackMetric).Median))
	}
	return t
}

func callsTable(s results.Set) table {
	t := table{
		title: "System calls of a turn in the library, counted by strace, with the runtime's own.",
		head:  []string{"queue", "callers", "calls", "without the scheduler's", "of which"},
	}
	for _, c := range s.Cases(callsMetric) {
		var parts []string
		for _, r := range s {
			name, ok := strings.CutPrefix(r.Metric, callPrefix)
			if n := s.Summary(c, r.Metric).Median; ok && r.Case == c && r.Run == 1 && n >= 0.005 {
				parts = append(parts, fmt.Sprintf("%s %.2f", name, n))
			}
		}
		t.add(c.Subject, fmt.Sprint(c.Clients), spread(s.Summary(c, callsMetric)), number(s.Summary(c, ownCallsMetric).Median), strings.Join(parts, ", "))
	}
	return t
}

func instructionsTable(s results.Set) table {
	t := table{
		title: "Instructions of a turn in the library, counted by valgrind, without the kernel's.",
		head:  []string{"queue", "waiting", "instructions", "of those with 50", "without garbage collection", "of those with 50"},
	}
	for _, c := range s.Cases(workedMetric) {
		few := results.Case{Subject: c.Subject, Waiting: 50}
		t.add(c.Subject, thousands(fmt.Sprint(c.Waiting)),
			number(s.Summary(c, workedMetric).Median), number(s.Ratio(c, few, workedMetric).Median),
			number(s.Summary(c, pureWorkMetric).Median), number(s.Ratio(c, few, pureWorkMetric).Median))
	}
	return t
}

func requestsTable(s results.Set) table {
	t := table{
		title: "What a request for `respond` allocates in Caddy, all in all.",
		head:  []string{"server", "clients", "allocations", "more than free", "bytes", "more than free"},
	}
	for _, c := range s.Cases(requestAllocs) {
		free := results.Case{Subject: caddyFree, Clients: c.Clients}
		allocs, allocated := s.Summary(c, requestAllocs).Median, s.Summary(c, requestAllocated).Median
		t.add(c.Subject, fmt.Sprint(c.Clients), number(allocs), number(allocs-s.Summary(free, requestAllocs).Median),
			number(allocated), number(allocated-s.Summary(free, requestAllocated).Median))
	}
	return t
}

func crowdTable(s results.Set) table {
	t := table{
		title: fmt.Sprintf("Memory of Caddy for each of %s connections, heap and stack, after a garbage collection.", thousands(fmt.Sprint(crowd))),
		head:  []string{"what they do", "bytes", "more than idle"},
	}
	idle := s.Summary(results.Case{Subject: idleSubject, Waiting: crowd}, connectionHeap).Median
	for _, c := range s.Cases(connectionHeap) {
		bytes := s.Summary(c, connectionHeap)
		t.add(c.Subject, spread(bytes), number(bytes.Median-idle))
	}
	return t
}
