//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite cost counts what does not depend on the speed of the machine.
var costSuite = suite{name: "cost", measure: measureCost, tables: costTables, targets: costTargets}

const (
	idleCaddy     = "Caddy, idle connection"
	retryingCaddy = "Caddy, waiting for an upstream"
)

func measureCost(ctx context.Context, b *bench) error {
	var errs []error
	for _, part := range []func(context.Context) error{b.weighLibrary, b.countCalls, b.countInstructions, b.weighRequests, b.weighCrowds} {
		errs = append(errs, part(ctx))
	}
	return errors.Join(errs...)
}

func costTables(s figures.Set) []table {
	free := instead(caddyFree)
	requests := only(s.Cases(figures.Allocations), func(c figures.Case) bool { return c.Group == "request" })
	server := label("server", func(c figures.Case) string { c.Group = ""; return name(c) })
	return []table{
		tabulate(s, "The library's memory.", s.Cases(figures.WaiterHeap),
			label("queue", name), label("callers", clients),
			median("allocations of a turn", figures.Allocations), median("bytes", figures.Allocated),
			spread("waiter: heap, bytes", figures.WaiterHeap), median("stack, bytes", figures.WaiterStack)),
		tabulate(s, "System calls of a turn in the library, counted by strace, including the Go runtime's.", s.Cases(figures.OwnCalls),
			label("queue", name), label("callers", clients),
			spread("calls", figures.Calls), median("without the scheduler's", figures.OwnCalls), column{"of which", callNames}),
		tabulate(s, "Instructions of a turn in the library, counted by valgrind, excluding the kernel's.", s.Cases(figures.Instructions),
			label("queue", name), label("waiting", waiting),
			median("instructions", figures.Instructions), ratio("of that with 50", figures.Instructions, withFifty),
			median("without garbage collection", figures.PureInstructions), ratio("of that with 50", figures.PureInstructions, withFifty)),
		tabulate(s, "Allocations of a request for `respond` in Caddy.", requests, server, label("clients", clients),
			median("allocations", figures.Allocations), more("more than free", figures.Allocations, free),
			median("bytes", figures.Allocated), more("more than free", figures.Allocated, free)),
		tabulate(s, fmt.Sprintf("Memory of Caddy for each of %s connections, heap and stack, after a garbage collection.", number(crowd)),
			s.Cases(figures.Connection), label("state", name),
			spread("bytes", figures.Connection), more("more than idle", figures.Connection, instead(idleCaddy))),
	}
}

// callNames lists the system calls of a case.
func callNames(s figures.Set, whole figures.Case) string {
	var parts []string
	for _, c := range s.Cases(figures.Calls) {
		call := c.Setting
		if c.Setting = ""; call == "" || c != whole {
			continue
		}
		c.Setting = call
		if n := s.Summary(c, figures.Calls).Median; n >= 0.005 {
			parts = append(parts, fmt.Sprintf("%s %.2f", call, n))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func costTargets(all figures.Set) (ts []target) {
	s := all.Of("cost")
	for _, c := range s.Cases(figures.OwnCalls) {
		ts = append(ts,
			atMost(fmt.Sprintf("system calls of a turn, %d callers, including the Go runtime's", c.Clients), 8, "", s.Summary(c, figures.Calls)),
			atMost("the same, without those of the runtime's scheduler", 8, "", s.Summary(c, figures.OwnCalls)))
	}
	for _, c := range s.Cases(figures.WaiterHeap) {
		if c.Clients == 1 && c.Contestant == fileQueue {
			ts = append(ts, atMost("heap of a waiter, "+name(c), 2048, " B", s.Summary(c, figures.WaiterHeap)))
		}
	}
	return ts
}

// work is a trial of work in the library.
func (q queue) work(callers, turns int, measure func(context.Context, library.Work) (figures.Values, error)) trial {
	q.Clients = callers
	return q.trial(func(ctx context.Context, e library.Engine, _ figures.Case) (figures.Values, error) {
		return measure(ctx, library.Work{Engine: e, Callers: callers, Turns: turns / callers})
	})
}

func (b *bench) weighLibrary(ctx context.Context) error {
	var trials []trial
	for _, q := range b.queues()[1:4] {
		for _, callers := range []int{1, 32} {
			trials = append(trials, q.work(callers, pick(b.quick, 2000, 20_000), func(ctx context.Context, w library.Work) (figures.Values, error) {
				return library.Footprint{Work: w, Waiting: 8000}.Run(ctx)
			}))
		}
	}
	return b.alternate(ctx, b.runs, trials...)
}

// countCalls counts system calls with strace. The calls of one name have it as their
// setting.
func (b *bench) countCalls(ctx context.Context) error {
	strace, err := machine.Find("strace")
	if err != nil {
		return b.skip("system calls", err)
	}
	var trials []trial
	for _, callers := range []int{1, 32} {
		q := b.queues()[3]
		trials = append(trials, q.work(callers, pick(b.quick, 4000, 20_000), func(ctx context.Context, w library.Work) (figures.Values, error) {
			calls, err := w.Syscalls(ctx, strace, b.home)
			for call, n := range calls {
				part := q.Case
				part.Clients, part.Setting = callers, call
				b.note(part, figures.Values{figures.Calls: n})
			}
			return figures.Values{figures.Calls: calls.Sum(), figures.OwnCalls: calls.Own()}, err
		}))
	}
	return b.alternate(ctx, b.runs, trials...)
}

// countInstructions counts instructions with valgrind. They hardly differ from run to
// run, so one is enough; it is too long for a quick look.
func (b *bench) countInstructions(ctx context.Context) error {
	valgrind, err := machine.Find("valgrind")
	if err != nil || b.quick {
		return b.skip("instructions", err)
	}
	return b.alternate(ctx, 1, b.instructionTrials(func(ctx context.Context, q library.Queueing, gogc string) (float64, error) {
		return q.Instructions(ctx, valgrind, b.home, gogc)
	})...)
}

func (b *bench) instructionTrials(count func(ctx context.Context, q library.Queueing, gogc string) (float64, error)) (trials []trial) {
	for _, q := range b.queues()[:3] {
		for _, q.Waiting = range []int{50, 8000} {
			for gogc, m := range map[string]figures.Metric{"100": figures.Instructions, "off": figures.PureInstructions} {
				trials = append(trials, q.trial(func(ctx context.Context, e library.Engine, at figures.Case) (figures.Values, error) {
					// The first quarter is longer than the queue.
					n, err := count(ctx, library.Queueing{Engine: e, Waiting: at.Waiting, Turns: 80_000}, gogc)
					return figures.Values{m: n}, err
				}))
			}
		}
	}
	return trials
}

// weighRequests counts what a request allocates in Caddy, with the queue and without.
func (b *bench) weighRequests(ctx context.Context) error {
	c := &contest{bench: b, contestants: b.caddies("respond ok")}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return err
	}
	var trials []trial
	for _, n := range []int{1, 32} {
		for _, who := range c.contestants {
			who.Group = "request"
			at := who.under(figures.Case{Clients: n})
			trials = append(trials, trial{at, func(ctx context.Context) (figures.Values, error) { return b.weighRequest(ctx, who.server, n) }})
		}
	}
	return b.alternate(ctx, b.runs, trials...)
}

func (b *bench) weighRequest(ctx context.Context, server *servers.Server, clients int) (figures.Values, error) {
	before, err := server.MemStats(ctx)
	if err != nil {
		return nil, err
	}
	o, err := load.Run(ctx, load.Plan{Addrs: server.Addrs, Clients: clients, Window: b.window})
	if err != nil {
		return nil, err
	}
	after, err := server.MemStats(ctx)
	return figures.Values{
		figures.Allocations: float64(after.Mallocs-before.Mallocs) / float64(o.Total),
		figures.Allocated:   float64(after.TotalAlloc-before.TotalAlloc) / float64(o.Total),
	}, err
}

// crowd is how many requests wait to be weighed.
const crowd = 4000

// weighCrowds weighs requests that wait: in the queue, and in Caddy's own way, for an
// upstream that is down.
func (b *bench) weighCrowds(ctx context.Context) error {
	var trials []trial
	for _, who := range []*contestant{
		b.caddy(idleCaddy, "respond ok"),
		b.caddy(retryingCaddy, "reverse_proxy 127.0.0.1:1 {\n\tlb_try_duration 60s\n\tlb_try_interval 60s\n}"),
		b.serializing("", b.reverseProxy()),
		b.serializing(b.disk, b.reverseProxy()),
	} {
		who.Waiting = crowd
		trials = append(trials, b.started(who, who.Case, func(ctx context.Context, server *servers.Server) (figures.Values, error) {
			return weighCrowd(ctx, server, who.serial)
		}))
	}
	return b.alternate(ctx, b.runs, trials...)
}

// weighCrowd has many clients ask a new Caddy for what takes a minute.
func weighCrowd(ctx context.Context, server *servers.Server, serial bool) (figures.Values, error) {
	// The first request brings Caddy to life.
	first := load.Plan{Addrs: server.Addrs, Clients: 1, Path: new(servers.Backend).Path(time.Millisecond, 0), Patience: time.Second, Window: 100 * time.Millisecond}
	if _, err := load.Run(ctx, first); err != nil {
		return nil, err
	}
	before, err := server.MemStats(ctx)
	if err != nil {
		return nil, err
	}
	disperse, err := load.Gather(ctx, load.Plan{Addrs: server.Addrs, Clients: crowd, Path: new(servers.Backend).Path(time.Minute, 0)})
	defer disperse()
	if err != nil {
		return nil, err
	}
	after, err := settledMemory(ctx, server)
	if err != nil {
		return nil, err
	}
	if serial {
		if n, err := server.Tickets(ctx); err != nil || n != crowd {
			return nil, errors.Join(err, fmt.Errorf("%d are in the queue, not %d", n, crowd))
		}
	}
	return figures.Values{figures.Connection: inUse(after, before) / crowd}, nil
}

// inUse is how much more memory is in use after than before.
func inUse(after, before runtime.MemStats) float64 {
	return float64(after.HeapAlloc+after.StackInuse) - float64(before.HeapAlloc+before.StackInuse)
}

// settledMemory is the memory in use once it no longer changes.
func settledMemory(ctx context.Context, server *servers.Server) (now runtime.MemStats, err error) {
	for before := 0.0; ; before = float64(now.HeapAlloc) {
		time.Sleep(500 * time.Millisecond)
		now, err = server.MemStats(ctx)
		if err != nil || math.Abs(float64(now.HeapAlloc)-before) < float64(now.HeapAlloc)/200 {
			return now, err
		}
	}
}
