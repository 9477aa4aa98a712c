//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
	"github.com/orderly-http/caddy-orderly/bench/internal/stats"
)

// The figures of servers.
const (
	rateMetric   = "requests per second"
	medianMetric = "median wait"
	lateMetric   = "99th percentile"
	mostMetric   = "inside at once"
	failMetric   = "requests that failed"

	stalledMetric = "runs in which a client had no answer" // in half a minute
)

// contestant is a server that takes part in a comparison.
type contestant struct {
	name      string
	processes int // 0 where that is not the question
	start     func(context.Context) (*servers.Server, error)
	serial    bool // promises that one at a time is inside
	server    *servers.Server
}

// condition is what all contestants have to bear.
type condition struct {
	clients int
	hold    time.Duration
}

func (c *contestant) under(cond condition) results.Case {
	return results.Case{Subject: c.name, Processes: c.processes, Clients: cond.clients, Hold: cond.hold}
}

// contest starts servers and has them serve in turns.
type contest struct {
	bench       *workbench
	set         *results.Set
	backend     *servers.Backend // nil if the servers answer by themselves
	contestants []*contestant
	promised    bool // there are promises about the results
}

func (c *contest) run(ctx context.Context, conditions []condition) error {
	defer c.stop()
	if err := c.startAll(ctx); err != nil {
		return err
	}
	for _, cond := range conditions {
		if most := mostClients(); cond.clients > most {
			c.bench.say("SKIPPED %d clients: the limit of open files allows %d; raise it with ulimit -n", cond.clients, most)
			continue
		}
		for run := range c.runs(cond) {
			if err := c.turn(ctx, cond, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// promisedClients is the number of clients that promises are about.
const promisedClients = 32

// runs is how often each contestant has its turn: three times as often where
// the result decides about a promise.
func (c *contest) runs(cond condition) int {
	if c.promised && cond.clients == promisedClients && !c.bench.quick {
		return 3 * c.bench.runs
	}
	return c.bench.runs
}

func (c *contest) startAll(ctx context.Context) error {
	var present []*contestant
	for _, who := range c.contestants {
		server, err := who.start(ctx)
		if err != nil {
			if err = c.bench.skip(who.name, err); err != nil {
				return fmt.Errorf("starting %s: %w", who.name, err)
			}
			continue
		}
		who.server = server
		present = append(present, who)
	}
	c.contestants = present
	return nil
}

func (c *contest) stop() {
	for _, who := range c.contestants {
		if who.server != nil {
			who.server.Stop()
		}
	}
}

// turn lets each contestant serve once. Another one begins each time.
func (c *contest) turn(ctx context.Context, cond condition, run int) error {
	for i := range c.contestants {
		who := c.contestants[(i+run)%len(c.contestants)]
		err := c.bench.round(ctx, c.set, who.under(cond), run+1, func() error { return c.serve(ctx, who, cond, run+1) })
		if err != nil {
			return fmt.Errorf("%s with %d clients: %w", who.name, cond.clients, err)
		}
	}
	return nil
}

func (c *contest) serve(ctx context.Context, who *contestant, cond condition, run int) error {
	plan := load.Plan{Addrs: who.server.Addrs, Clients: cond.clients, Warmup: c.bench.window / 4, Window: c.bench.window}
	if c.backend != nil {
		plan.Path = servers.Path(cond.hold)
		if err := c.backend.Settle(ctx); err != nil {
			return err
		}
	}
	outcome, err := load.Run(ctx, plan)
	if err != nil {
		return err
	}
	c.note(who, cond, run, outcome)
	if !outcome.Settled || time.Duration(cond.clients)*cond.hold > longQueue {
		if err := who.restart(ctx); err != nil {
			return fmt.Errorf("starting %s again: %w", who.name, err)
		}
	}
	// Requests whose clients are gone are still on their way.
	time.Sleep(100*time.Millisecond + time.Duration(cond.clients)*100*time.Microsecond)
	return c.noteMost(ctx, who, cond, run)
}

// longQueue is the time that a queue may take to get empty by itself. HAProxy
// sends on what waits when the clients have gone, and now and then Debian's
// stands still for good.
const longQueue = time.Second

// restart ends the server and starts another.
func (c *contestant) restart(ctx context.Context) (err error) {
	c.server.Stop()
	c.server, err = c.start(ctx)
	return err
}

func (c *contest) note(who *contestant, cond condition, run int, o *load.Outcome) {
	at := who.under(cond)
	if failed := o.Failures + o.Others; failed > 0 {
		c.set.Add(at, run, failMetric, float64(failed), "")
		c.bench.say("%s, %d clients: %d requests failed (%d with a status other than 200): %v", who.name, cond.clients, failed, o.Others, o.Failure)
	}
	if !o.Settled {
		c.set.Add(at, run, stalledMetric, 1, "")
		c.bench.say("%s, %d clients: not every client had an answer in time; the run does not count", who.name, cond.clients)
		return
	}
	c.set.Add(at, run, rateMetric, o.Rate(), "1/s")
	c.set.Add(at, run, medianMetric, milliseconds(stats.Quantile(o.Waits, 0.5)), "ms")
	c.set.Add(at, run, lateMetric, milliseconds(stats.Quantile(o.Waits, 0.99)), "ms")
	c.bench.say("run %d, %4d clients, hold %5s: %-26s %8.0f/s", run, cond.clients, cond.hold, at.Subject, o.Rate())
}

func milliseconds(ns float64) float64 { return ns / float64(time.Millisecond) }

// noteMost makes sure that the fast ones keep their promise.
func (c *contest) noteMost(ctx context.Context, who *contestant, cond condition, run int) error {
	if c.backend == nil {
		return nil
	}
	most, err := c.backend.Most(ctx)
	if err != nil {
		return err
	}
	c.set.Add(who.under(cond), run, mostMetric, float64(most), "")
	if who.serial && most > 1 {
		return fmt.Errorf("%d were inside at once", most)
	}
	return nil
}
