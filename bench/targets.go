//go:build linux

package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/stats"
)

// target is a figure that was promised.
type target struct {
	what     string
	bound    float64
	atLeast  bool // else at most
	unit     string
	measured stats.Summary
}

func (t target) met() string {
	switch {
	case t.measured.N == 0:
		return "not measured"
	case t.atLeast == (t.measured.Median >= t.bound), t.measured.Median == t.bound:
		return "yes"
	}
	return "**no**"
}

func (t target) sign() string {
	if t.atLeast {
		return "at least "
	}
	return "at most "
}

func targetsTable(all map[string]results.Set) table {
	t := table{title: "What was promised, and what was measured.", head: []string{"figure", "promise", "measured", "met"}}
	for _, target := range targets(all) {
		t.add(target.what, target.sign()+number(target.bound)+target.unit, spread(target.measured), target.met())
	}
	return t
}

func targets(all map[string]results.Set) (ts []target) {
	respond, proxy, handover, waiting, cost := all["respond"], all["proxy"], all["handover"], all["waiting"], all["cost"]
	atLeast := func(what string, bound float64, measured stats.Summary) {
		ts = append(ts, target{what: what, bound: bound, atLeast: true, measured: measured})
	}
	atMost := func(what string, bound float64, unit string, measured stats.Summary) {
		ts = append(ts, target{what: what, bound: bound, unit: unit, measured: measured})
	}
	disk := diskSubject(respond, rateMetric)
	atLeast("`respond` behind `serialize`, file on a disk, of free, 32 clients", 0.6,
		respond.Ratio(results.Case{Subject: disk, Clients: promisedClients}, results.Case{Subject: caddyFree, Clients: promisedClients}, rateMetric))
	disk = diskSubject(proxy, rateMetric)
	for _, hold := range []time.Duration{0, 500 * time.Microsecond} {
		ours, theirs := results.Case{Subject: disk, Clients: promisedClients, Hold: hold}, results.Case{Subject: haproxyOne, Clients: promisedClients, Hold: hold}
		under := fmt.Sprintf(", 32 clients, backend takes %s", holdText(hold))
		atLeast("requests a second, of HAProxy's `maxconn 1`"+under, 1.1, proxy.Ratio(ours, theirs, rateMetric))
		atMost("99th percentile, of HAProxy's `maxconn 1`"+under, 1, "", proxy.Ratio(ours, theirs, lateMetric))
	}
	for _, c := range handover.Cases(handOverMetric) {
		if c.Processes < 2 || c.Subject == pipeSubject {
			continue
		}
		within := results.Case{Subject: strings.Replace(c.Subject, betweenSubject, withinSubject, 1), Processes: 1, Hold: c.Hold}
		under := fmt.Sprintf("hand-over %s, each stays %s", c.Subject, holdText(c.Hold))
		atMost(under+": median", 100, " µs", handover.Summary(c, handOverMetric))
		atMost(under+": 99th percentile", 1000, " µs", handover.Summary(c, lateHandOver))
		atMost(under+": of that within one", 3, "", handover.Ratio(c, within, handOverMetric))
	}
	for _, subject := range waiting.Subjects(costMetric) {
		if strings.HasPrefix(subject, filePrefix) || subject == memorySubject {
			many, few := results.Case{Subject: subject, Waiting: 8000}, results.Case{Subject: subject, Waiting: 50}
			atMost("a turn with 8,000 waiting, of that with 50, "+subject, 1.5, "", waiting.Ratio(many, few, costMetric))
			atMost("the same, processor's time", 1.5, "", waiting.Ratio(many, few, workMetric))
		}
	}
	for _, c := range cost.Cases(callsMetric) {
		atMost(fmt.Sprintf("system calls of a turn, %d callers, with the runtime's own", c.Clients), 8, "", cost.Summary(c, callsMetric))
		atMost("the same, without those of the runtime's scheduler", 8, "", cost.Summary(c, ownCallsMetric))
	}
	for _, c := range cost.Cases(heapMetric) {
		if c.Clients == 1 && strings.HasPrefix(c.Subject, filePrefix) {
			atMost("heap for one who waits, "+c.Subject, 2048, " B", cost.Summary(c, heapMetric))
		}
	}
	return append(ts, hopTarget(waiting))
}

// hopTarget compares a hand-over with that of a channel.
func hopTarget(waiting results.Set) target {
	t := target{what: "hand-over in one process, file on a disk, more than a channel's, 50 waiting", bound: 10, unit: " µs",
		measured: stats.Summarize(nil)}
	disk := ""
	for _, subject := range waiting.Subjects(handOverMetric) {
		if strings.HasPrefix(subject, filePrefix) && !strings.HasSuffix(subject, tmpfsFileSystem) {
			disk = subject
		}
	}
	file := waiting.Summary(results.Case{Subject: disk, Waiting: 50}, handOverMetric)
	channel := waiting.Summary(results.Case{Subject: channelSubject, Waiting: 50}, handOverMetric)
	if more := file.Median - channel.Median; !math.IsNaN(more) {
		t.measured = stats.Summary{Median: more, Min: file.Min - channel.Max, Max: file.Max - channel.Min, N: file.N}
	}
	return t
}

// diskSubject is the server with lock files on a disk, whatever its file system.
func diskSubject(s results.Set, metric string) string {
	for _, subject := range s.Subjects(metric) {
		if isFile(subject) {
			return subject
		}
	}
	return ""
}
