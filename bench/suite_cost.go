//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite cost counts what does not depend on the speed of the machine.
var costSuite = suite{name: "cost", measure: measureCost, tables: costTables, targets: costTargets}

// The figures of costs that are not time. That of one system call has its name
// as the subject's detail.
var (
	callsMetric            = results.Metric{Name: "system calls"}
	ownCallsMetric         = results.Metric{Name: "system calls without the scheduler's"}
	instructionsMetric     = results.Metric{Name: "instructions"}
	pureInstructionsMetric = results.Metric{Name: "instructions without garbage collection"}
	allocsMetric           = results.Metric{Name: "allocations"}
	allocatedMetric        = results.Metric{Name: "bytes allocated", Unit: "B"}
	heapMetric             = results.Metric{Name: "heap of one who waits", Unit: "B"}
	stackMetric            = results.Metric{Name: "stack of one who waits", Unit: "B"}
	requestAllocsMetric    = results.Metric{Name: "allocations of a request"}
	requestBytesMetric     = results.Metric{Name: "bytes allocated of a request", Unit: "B"}
	connectionMetric       = results.Metric{Name: "heap and stack of a connection that waits", Unit: "B"}
)

var (
	idleCaddy     = results.Subject{Name: "Caddy, idle connection"}
	retryingCaddy = results.Subject{Name: "Caddy, waiting for an upstream"}
)

func measureCost(ctx context.Context, b *workbench) error {
	var errs []error
	for _, part := range []func(context.Context) error{b.weighLibrary, b.countCalls, b.countInstructions, b.weighRequests, b.weighCrowds} {
		errs = append(errs, part(ctx))
	}
	return errors.Join(errs...)
}

func costTables(s results.Set) []table {
	return []table{libraryTable(s), callsTable(s), instructionsTable(s), requestsTable(s), crowdTable(s)}
}

func costTargets(all map[string]results.Set) (ts []target) {
	s := all["cost"]
	for _, c := range callCases(s) {
		ts = append(ts,
			atMost(fmt.Sprintf("system calls of a turn, %d callers, with the runtime's own", c.Clients), 8, "", s.Summary(c, callsMetric)),
			atMost("the same, without those of the runtime's scheduler", 8, "", s.Summary(c, ownCallsMetric)))
	}
	for _, c := range s.Cases(heapMetric) {
		if c.Clients == 1 && c.Name == fileQueue.Name {
			ts = append(ts, atMost("heap for one who waits, "+c.Subject.String(), 2048, " B", s.Summary(c, heapMetric)))
		}
	}
	return append(ts, channelTarget(all["waiting"]))
}

func (b *workbench) weighLibrary(ctx context.Context) error {
	for run := range b.runs {
		for _, q := range b.queues()[1:4] {
			for _, callers := range []int{1, 32} {
				engine, err := q.place()
				if err != nil {
					return err
				}
				work := library.Work{Engine: engine, Callers: callers, Turns: pick(0, b.quick, 2000, 20_000) / callers}
				f, err := library.Footprinting{Work: work, Waiting: 8000}.Run(ctx)
				if err != nil {
					return fmt.Errorf("weighing %s: %w", q, err)
				}
				c := results.Case{Subject: q.Subject, Clients: callers}
				b.set.Add(c, run+1, allocsMetric, f.Allocations)
				b.set.Add(c, run+1, allocatedMetric, f.Allocated)
				b.set.Add(c, run+1, heapMetric, f.WaitingHeap)
				b.set.Add(c, run+1, stackMetric, f.WaitingStack)
				b.say("run %d, %2d callers: %-16s %.1f allocations, %.0f bytes on the heap for one who waits", run+1, callers, q, f.Allocations, f.WaitingHeap)
			}
		}
	}
	return nil
}

func libraryTable(s results.Set) table {
	return tabulate(s, "The library's memory.", s.Cases(heapMetric),
		subjectColumn("queue"), clientsColumn("callers"),
		medianColumn("allocations of a turn", allocsMetric), medianColumn("bytes", allocatedMetric),
		spreadColumn("one who waits: heap, bytes", heapMetric, itself), medianColumn("stack, bytes", stackMetric))
}

// countCalls counts system calls with strace.
func (b *workbench) countCalls(ctx context.Context) error {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return b.skip("system calls", &servers.Missing{Program: "strace", Package: "strace"})
	}
	q := b.queues()[3]
	for run := range b.runs {
		for _, callers := range []int{1, 32} {
			engine, err := q.place()
			if err != nil {
				return err
			}
			work := library.Work{Engine: engine, Callers: callers, Turns: pick(0, b.quick, 4000, 20_000) / callers}
			calls, err := work.Syscalls(ctx, strace, b.home)
			if err != nil {
				return err
			}
			c := results.Case{Subject: q.Subject, Clients: callers}
			b.set.Add(c, run+1, callsMetric, calls.Sum())
			b.set.Add(c, run+1, ownCallsMetric, calls.Own())
			for _, name := range slices.Sorted(maps.Keys(calls)) {
				c.Detail = name
				b.set.Add(c, run+1, callsMetric, calls[name])
			}
			b.say("run %d, %2d callers: %.2f system calls", run+1, callers, calls.Sum())
		}
	}
	return nil
}

// callCases are the cases of all system calls together.
func callCases(s results.Set) []results.Case { return s.Cases(ownCallsMetric) }

func callsTable(s results.Set) table {
	parts := func(s results.Set, c results.Case) string {
		var parts []string
		for _, part := range s.Cases(callsMetric) {
			whole := part
			whole.Detail = ""
			if n := s.Summary(part, callsMetric).Median; part != whole && whole == c && n >= 0.005 {
				parts = append(parts, fmt.Sprintf("%s %.2f", part.Detail, n))
			}
		}
		return strings.Join(parts, ", ")
	}
	return tabulate(s, "System calls of a turn in the library, counted by strace, with the runtime's own.", callCases(s),
		subjectColumn("queue"), clientsColumn("callers"),
		spreadColumn("calls", callsMetric, itself), medianColumn("without the scheduler's", ownCallsMetric),
		column{"of which", parts})
}

// countInstructions counts instructions with valgrind. They hardly differ from
// run to run, so one is enough; it is too long for a quick look.
func (b *workbench) countInstructions(ctx context.Context) error {
	if b.quick {
		return nil
	}
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		return b.skip("instructions", &servers.Missing{Program: "valgrind", Package: "valgrind"})
	}
	const turns = 80_000 // of which the first quarter is longer than the queue
	for _, q := range b.queues()[:3] {
		for _, waiting := range []int{50, 8000} {
			for _, metric := range []results.Metric{instructionsMetric, pureInstructionsMetric} {
				gogc := "100"
				if metric == pureInstructionsMetric {
					gogc = "off"
				}
				engine, err := q.place()
				if err != nil {
					return err
				}
				work := library.Crowded{Engine: engine, Waiting: waiting, Turns: turns}
				n, err := work.Instructions(ctx, valgrind, b.home, gogc)
				if err != nil {
					return fmt.Errorf("%s with %d waiting: %w", q, waiting, err)
				}
				b.say("%5d waiting: %-32s %.0f %s", waiting, q, n, metric.Name)
				b.set.Add(results.Case{Subject: q.Subject, Waiting: waiting}, 1, metric, n)
			}
		}
	}
	return nil
}

func instructionsTable(s results.Set) table {
	few := withWaiting(50)
	return tabulate(s, "Instructions of a turn in the library, counted by valgrind, without the kernel's.", s.Cases(instructionsMetric),
		subjectColumn("queue"), waitingColumn("waiting"),
		medianColumn("instructions", instructionsMetric), ratioColumn("of those with 50", instructionsMetric, few),
		medianColumn("without garbage collection", pureInstructionsMetric), ratioColumn("of those with 50", pureInstructionsMetric, few))
}

// weighRequests counts what a request allocates in Caddy, with the queue and
// without.
func (b *workbench) weighRequests(ctx context.Context) error {
	c := &contest{workbench: b, contestants: b.caddies("respond ok")}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return err
	}
	for run := range b.runs {
		for _, clients := range []int{1, 32} {
			for _, who := range c.contestants {
				if err := b.weighRequest(ctx, who, condition{clients: clients}, run+1); err != nil {
					return fmt.Errorf("counting allocations of %s: %w", who, err)
				}
			}
		}
	}
	return nil
}

func (b *workbench) weighRequest(ctx context.Context, who *contestant, cond condition, run int) error {
	before, err := who.server.MemStats(ctx)
	if err != nil {
		return err
	}
	o, err := load.Run(ctx, load.Plan{Addrs: who.server.Addrs, Clients: cond.clients, Window: b.window})
	if err != nil {
		return err
	}
	after, err := who.server.MemStats(ctx)
	b.set.Add(who.under(cond), run, requestAllocsMetric, (after.Mallocs-before.Mallocs)/float64(o.Total))
	b.set.Add(who.under(cond), run, requestBytesMetric, (after.TotalAlloc-before.TotalAlloc)/float64(o.Total))
	return err
}

func requestsTable(s results.Set) table {
	free := withSubject(caddyFree)
	return tabulate(s, "What a request for `respond` allocates in Caddy, all in all.", s.Cases(requestAllocsMetric),
		subjectColumn("server"), clientsColumn("clients"),
		medianColumn("allocations", requestAllocsMetric), moreColumn("more than free", requestAllocsMetric, free),
		medianColumn("bytes", requestBytesMetric), moreColumn("more than free", requestBytesMetric, free))
}

// crowd is how many requests wait to be weighed.
const crowd = 4000

// weighCrowds weighs requests that wait: in the queue, and in Caddy's own way,
// for an upstream that is down.
func (b *workbench) weighCrowds(ctx context.Context) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	contestants := []*contestant{
		b.caddy(idleCaddy, "respond ok", 0),
		b.caddy(retryingCaddy, "reverse_proxy 127.0.0.1:1 {\n\tlb_try_duration 60s\n\tlb_try_interval 60s\n}", 0),
		b.serializing("", reverseProxy(backend), 0),
		b.serializing(b.disk, reverseProxy(backend), 0),
	}
	for run := range b.runs {
		for _, who := range contestants {
			if err := b.weighCrowd(ctx, who, run+1); err != nil {
				return fmt.Errorf("weighing the crowd of %s: %w", who, err)
			}
		}
	}
	return nil
}

// weighCrowd has many clients ask a new Caddy for what takes a minute.
func (b *workbench) weighCrowd(ctx context.Context, who *contestant, run int) error {
	server, err := who.start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	// The first request brings Caddy to life.
	if _, err := load.Run(ctx, load.Plan{Addrs: server.Addrs, Clients: 1, Path: servers.Path(time.Millisecond), Patience: time.Second, Window: 100 * time.Millisecond}); err != nil {
		return err
	}
	before, err := server.MemStats(ctx)
	if err != nil {
		return err
	}
	disperse, err := load.Gather(ctx, server.Addrs[0], servers.Path(time.Minute), crowd)
	defer disperse()
	if err != nil {
		return err
	}
	after, err := settledMemory(ctx, server)
	if err != nil {
		return err
	}
	if who.serial {
		if n, err := server.Tickets(ctx); err != nil || n != crowd {
			return errors.Join(err, fmt.Errorf("%d are in the queue, not %d", n, crowd))
		}
	}
	each := (after.HeapAlloc + after.StackInuse - before.HeapAlloc - before.StackInuse) / crowd
	b.set.Add(results.Case{Subject: who.Subject, Waiting: crowd}, run, connectionMetric, each)
	return nil
}

// settledMemory is the memory in use once it no longer changes.
func settledMemory(ctx context.Context, server *servers.Server) (now servers.MemStats, err error) {
	for before := 0.0; ; before = now.HeapAlloc {
		time.Sleep(500 * time.Millisecond)
		if now, err = server.MemStats(ctx); err != nil || math.Abs(now.HeapAlloc-before) < now.HeapAlloc/200 {
			return now, err
		}
	}
}

func crowdTable(s results.Set) table {
	title := fmt.Sprintf("Memory of Caddy for each of %s connections, heap and stack, after a garbage collection.", number(crowd))
	return tabulate(s, title, s.Cases(connectionMetric),
		subjectColumn("what they do"),
		spreadColumn("bytes", connectionMetric, itself),
		moreColumn("more than idle", connectionMetric, withSubject(idleCaddy)))
}
