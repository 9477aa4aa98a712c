//go:build linux

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite nesting has one client that floods a queue, a quiet one and an urgent one,
// and measures what a second queue costs. Who asks is the setting of a case.
var nestingSuite = suite{name: "nesting", measure: measureNesting, tables: nestingTables}

const (
	oneQueue       = "one queue"
	sharesQueue    = "two nested queues, the outer one for each user"
	importantQueue = "two nested queues, the outer one for the unimportant"
	priorityQueue  = "HAProxy, maxconn 1, set-priority-class"
	nestedHold     = 10 * time.Millisecond
)

// askers are those who ask, one client each but for the flooder.
var askers = []string{"flooder", "quiet", "urgent"}

func measureNesting(ctx context.Context, b *bench) error {
	if err := b.measureSecondQueue(ctx); err != nil {
		return err
	}
	proxy := b.reverseProxy()
	priority := "http-request set-priority-class int(-10) if { req.hdr(X-User) urgent }"
	contestants := []*contestant{
		b.nested(oneQueue, "", proxy),
		b.nested(sharesQueue, "serialize {\n\tpath LOCKS\n\tprefix share_{http.request.header.X-User}_\n}", proxy),
		b.nested(importantQueue, "@unimportant not header X-User urgent\nserialize @unimportant {\n\tpath LOCKS\n\tprefix unimportant_\n}", proxy),
		b.peer(haproxyOne, servers.HAProxy{Backend: b.backend.Addr, MaxConn: 1}.Program()),
		b.peer(priorityQueue, servers.HAProxy{Backend: b.backend.Addr, MaxConn: 1, Rules: priority}.Program()),
	}
	for _, flood := range []int{64, 1000}[:pick(b.quick, 1, 2)] {
		var trials []trial
		for _, who := range contestants {
			at := who.Case
			at.Clients, at.Hold = flood, nestedHold
			trials = append(trials, b.startedFor(who, at, func(ctx context.Context, addrs []string) (figures.Values, error) {
				return b.flood(ctx, at, load.Plan{Addrs: addrs, Path: b.backend.Path(nestedHold, 0)})
			}))
		}
		// With many, a run is long, and the figures hardly differ.
		if err := b.alternate(ctx, pick(flood > 100, 1, b.runs), trials...); err != nil {
			return err
		}
	}
	return nil
}

// nested is a Caddy with a queue for all within an outer one, if there is any.
func (b *bench) nested(contestantName, outer, handler string) *contestant {
	who := b.caddy(contestantName, outer+"\nhandle {\nserialize {\n\tpath LOCKS\n\tprefix all_\n}\n"+handler+"\n}")
	who.serial, who.locks = true, b.disk
	return who
}

// flood has all ask at the same time. A window sees each of the flooder's clients once
// at least.
func (b *bench) flood(ctx context.Context, at figures.Case, plan load.Plan) (figures.Values, error) {
	round := time.Duration(at.Clients) * nestedHold
	plan.Impatient, plan.Warmup, plan.Window = true, round+500*time.Millisecond, max(round*5/4, pick(b.quick, time.Second, 3*time.Second))
	outcomes, errs := make([]*load.Outcome, len(askers)), make([]error, len(askers))
	var done sync.WaitGroup
	for i, asker := range askers {
		own := plan
		own.Clients, own.Headers = 1, []string{"X-User: " + asker}
		if i == 0 {
			own.Clients = at.Clients
		}
		done.Go(func() { outcomes[i], errs[i] = load.Run(ctx, own) })
	}
	done.Wait()
	for i, asker := range askers {
		if errs[i] != nil {
			return nil, errs[i]
		}
		at.Setting = asker
		b.note(at, outcomes[i].Values())
	}
	return make(figures.Values), nil
}

// measureSecondQueue compares two queues with one where nothing else takes time.
func (b *bench) measureSecondQueue(ctx context.Context) error {
	outer := "serialize {\n\tpath LOCKS\n\tprefix outer_\n}"
	c := &contest{bench: b, contestants: []*contestant{
		b.caddy(caddyFree, "respond ok"), b.nested(oneQueue, "", "respond ok"), b.nested("two nested queues", outer, "respond ok"),
	}}
	return c.compare(ctx, each([]int{1, 32}, 0))
}

func nestingTables(s figures.Set) []table {
	asked := func(asker string) variant { return func(c figures.Case) figures.Case { c.Setting = asker; return c } }
	cases := inOrder(s, figures.Rate, byConditions)
	floods := only(slices.Clone(cases), func(c figures.Case) bool { return c.Setting == askers[0] })
	server := label("server", func(c figures.Case) string { return c.Contestant })
	return []table{
		tabulate(s, "One user floods an exclusive upstream that takes 10 ms; a quiet user and an urgent one have a client each. Wait in milliseconds.", floods,
			server, label("flooder's clients", clients), median("flooder: median", figures.Median),
			at(asked("quiet"), median("quiet: median", figures.Median)), at(asked("quiet"), median("99th percentile", figures.Late)),
			at(asked("urgent"), median("urgent: median", figures.Median)), at(asked("urgent"), median("99th percentile", figures.Late))),
		tabulate(s, "What a second queue costs before `respond`, lock files on a disk.",
			only(cases, func(c figures.Case) bool { return c.Setting == "" && c.Hold == 0 }),
			server, label("clients", clients), spread("requests a second", figures.Rate),
			ratio("of one queue", figures.Rate, instead(oneQueue)), spread("median wait, ms", figures.Median)),
	}
}
