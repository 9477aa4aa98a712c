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
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

var costSuite = &suite{name: "cost", measure: measureCost, tables: costTables}

// The figures of costs that are not time.
const (
	callsMetric      = "system calls"
	ownCallsMetric   = "system calls without the scheduler's"
	callPrefix       = "system calls: " // + the name of one
	workedMetric     = "instructions"
	pureWorkMetric   = "instructions without garbage collection"
	allocsMetric     = "allocations"
	allocatedMetric  = "bytes allocated"
	heapMetric       = "heap of one who waits"
	stackMetric      = "stack of one who waits"
	requestAllocs    = "allocations of a request"
	requestAllocated = "bytes allocated of a request"
	connectionHeap   = "heap and stack of a connection that waits"

	idleSubject     = "Caddy, idle connection"
	retryingSubject = "Caddy, waiting for an upstream"
)

// measureCost counts what does not depend on the speed of the machine.
func measureCost(ctx context.Context, b *workbench, set *results.Set) error {
	for run := range b.runs {
		for _, q := range b.queues()[1:4] {
			for _, callers := range []int{1, 32} {
				if err := b.footprint(ctx, set, q, callers, run+1); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(b.countCalls(ctx, set), b.countInstructions(ctx, set), b.requests(ctx, set), b.crowds(ctx, set))
}

func (b *workbench) footprint(ctx context.Context, set *results.Set, q queue, callers, run int) error {
	dir, err := b.place(q)
	if err != nil {
		return err
	}
	turns, waiting := 20_000, 8000
	if b.quick {
		turns = 2000
	}
	work := library.Work{Engine: q.engine, Dir: dir, Callers: callers, Turns: turns / callers}
	f, err := library.Footprinting{Work: work, Waiting: waiting}.Run(ctx)
	if err != nil {
		return fmt.Errorf("weighing %s: %w", q.subject, err)
	}
	c := results.Case{Subject: q.subject, Clients: callers}
	set.Add(c, run, allocsMetric, f.Allocations, "")
	set.Add(c, run, allocatedMetric, f.Allocated, "B")
	set.Add(c, run, heapMetric, f.WaitingHeap, "B")
	set.Add(c, run, stackMetric, f.WaitingStack, "B")
	b.say("run %d, %2d callers: %-16s %.1f allocations, %.0f bytes on the heap for one who waits", run, callers, q.subject, f.Allocations, f.WaitingHeap)
	return nil
}

// countCalls counts system calls with strace.
func (b *workbench) countCalls(ctx context.Context, set *results.Set) error {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return b.skip("system calls", &servers.Missing{Program: "strace", Package: "strace"})
	}
	turns := 20_000
	if b.quick {
		turns = 4000
	}
	for run := range b.runs {
		for _, callers := range []int{1, 32} {
			q := b.queues()[3]
			dir, err := b.place(q)
			if err != nil {
				return err
			}
			work := library.Work{Engine: q.engine, Dir: dir, Callers: callers, Turns: turns / callers}
			calls, err := work.Syscalls(ctx, strace, b.home)
			if err != nil {
				return err
			}
			c := results.Case{Subject: q.subject, Clients: callers}
			set.Add(c, run+1, callsMetric, calls.Sum(), "")
			set.Add(c, run+1, ownCallsMetric, calls.Own(), "")
			for _, name := range slices.Sorted(maps.Keys(calls)) {
				set.Add(c, run+1, callPrefix+name, calls[name], "")
			}
			b.say("run %d, %2d callers: %.2f system calls", run+1, callers, calls.Sum())
		}
	}
	return nil
}

// countInstructions counts instructions with valgrind. They hardly differ from
// run to run, so one is enough; it is too long for a quick look.
func (b *workbench) countInstructions(ctx context.Context, set *results.Set) error {
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
			for _, metric := range []string{workedMetric, pureWorkMetric} {
				gogc := "100"
				if metric == pureWorkMetric {
					gogc = "off"
				}
				dir, err := b.place(q)
				if err != nil {
					return err
				}
				work := library.Crowded{Engine: q.engine, Dir: dir, Waiting: waiting, Turns: turns}
				n, err := work.Instructions(ctx, valgrind, b.home, gogc)
				if err != nil {
					return fmt.Errorf("%s with %d waiting: %w", q.subject, waiting, err)
				}
				b.say("%5d waiting: %-32s %.0f %s", waiting, q.subject, n, metric)
				set.Add(results.Case{Subject: q.subject, Waiting: waiting}, 1, metric, n, "")
			}
		}
	}
	return nil
}

// requests counts what a request allocates in Caddy, with the queue and
// without.
func (b *workbench) requests(ctx context.Context, set *results.Set) error {
	contestants, err := b.caddies("respond ok")
	if err != nil {
		return err
	}
	c := &contest{bench: b, contestants: contestants}
	defer c.stop()
	if err := c.startAll(ctx); err != nil {
		return err
	}
	for run := range b.runs {
		for _, clients := range []int{1, 32} {
			for _, who := range c.contestants {
				if err := weighRequests(ctx, set, who, clients, run+1, b.window); err != nil {
					return fmt.Errorf("counting allocations of %s: %w", who.name, err)
				}
			}
		}
	}
	return nil
}

func weighRequests(ctx context.Context, set *results.Set, who *contestant, clients, run int, window time.Duration) error {
	before, err := who.server.MemStats(ctx)
	if err != nil {
		return err
	}
	o, err := load.Run(ctx, load.Plan{Addrs: who.server.Addrs, Clients: clients, Window: window})
	if err != nil {
		return err
	}
	after, err := who.server.MemStats(ctx)
	if err != nil {
		return err
	}
	at := who.under(condition{clients: clients})
	set.Add(at, run, requestAllocs, (after.Mallocs-before.Mallocs)/float64(o.Total), "")
	set.Add(at, run, requestAllocated, (after.TotalAlloc-before.TotalAlloc)/float64(o.Total), "B")
	return nil
}

// crowd is how many requests wait to be weighed.
const crowd = 4000

// crowds weighs requests that wait: in the queue, and in Caddy's own way, for an
// upstream that is down.
func (b *workbench) crowds(ctx context.Context, set *results.Set) error {
	backend, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.Stop()
	idle := b.caddyWith(idleSubject, "respond ok", 0)
	retrying := b.caddyWith(retryingSubject, "reverse_proxy 127.0.0.1:1 {\n\tlb_try_duration 60s\n\tlb_try_interval 60s\n}", 0)
	contestants := []*contestant{idle, retrying}
	for _, dir := range []string{"", b.disk} {
		c, err := b.serializing(dir, reverseProxy(backend.Addr), 0)
		if err != nil {
			return err
		}
		contestants = append(contestants, c)
	}
	for run := range b.runs {
		for _, who := range contestants {
			if err := weighCrowd(ctx, set, who, run+1); err != nil {
				return fmt.Errorf("weighing the crowd of %s: %w", who.name, err)
			}
		}
	}
	return nil
}

// weighCrowd has many clients ask a new Caddy for what takes a minute.
func weighCrowd(ctx context.Context, set *results.Set, who *contestant, run int) error {
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
	gathered, err := load.Gather(ctx, server.Addrs[0], servers.Path(time.Minute), crowd)
	if err != nil {
		return err
	}
	defer gathered.Disperse()
	after, err := settledMemory(ctx, server)
	if err != nil {
		return err
	}
	if err := everybodyWaits(ctx, who, server); err != nil {
		return err
	}
	each := (after.HeapAlloc + after.StackInuse - before.HeapAlloc - before.StackInuse) / crowd
	set.Add(results.Case{Subject: who.name, Waiting: crowd}, run, connectionHeap, each, "B")
	return nil
}

// settledMemory is the memory in use once it no longer changes.
func settledMemory(ctx context.Context, server *servers.Server) (now servers.MemStats, err error) {
	for before := 0.0; ; before = now.HeapAlloc {
		time.Sleep(500 * time.Millisecond)
		if now, err = server.MemStats(ctx); err != nil {
			return now, err
		}
		if math.Abs(now.HeapAlloc-before) < now.HeapAlloc/200 {
			return now, nil
		}
	}
}

func everybodyWaits(ctx context.Context, who *contestant, server *servers.Server) error {
	if !who.serial {
		return nil
	}
	n, err := server.Tickets(ctx)
	if err == nil && n != crowd {
		err = fmt.Errorf("%d are in the queue, not %d", n, crowd)
	}
	return err
}
