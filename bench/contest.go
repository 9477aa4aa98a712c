//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The figures of servers.
var (
	rateMetric    = results.Metric{Name: "requests per second", Unit: "1/s"}
	medianMetric  = results.Metric{Name: "median wait", Unit: "ms"}
	lateMetric    = results.Metric{Name: "99th percentile", Unit: "ms"}
	insideMetric  = results.Metric{Name: "inside at once"}
	failMetric    = results.Metric{Name: "requests that failed"}
	stalledMetric = results.Metric{Name: "runs in which a client had no answer"} // in half a minute
)

// contestant is a server that takes part in a comparison.
type contestant struct {
	results.Subject
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

func conditions(clients []int, holds ...time.Duration) (all []condition) {
	for _, hold := range holds {
		for _, n := range clients {
			all = append(all, condition{n, hold})
		}
	}
	return all
}

func (c *contestant) under(cond condition) results.Case {
	return results.Case{Subject: c.Subject, Processes: c.processes, Clients: cond.clients, Hold: cond.hold}
}

// restart ends the server and starts another.
func (c *contestant) restart(ctx context.Context) (err error) {
	c.server.Stop()
	c.server, err = c.start(ctx)
	return err
}

// contest starts servers and has them serve in turns.
type contest struct {
	*workbench
	backend     *servers.Backend // nil if the servers answer by themselves
	contestants []*contestant
	promised    bool // there are promises about the results
}

func (c *contest) run(ctx context.Context, conditions []condition) error {
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return err
	}
	for _, cond := range conditions {
		if most := mostClients(); cond.clients > most {
			c.say("SKIPPED %d clients: the limit of open files allows %d; raise it with ulimit -n", cond.clients, most)
			continue
		}
		for run := range c.repeats(cond) {
			if err := c.turns(ctx, cond, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// promisedClients is the number of clients that promises are about.
const promisedClients = 32

// repeats is how often each contestant has its turn: three times as often where
// the result decides about a promise.
func (c *contest) repeats(cond condition) int {
	if c.promised && cond.clients == promisedClients && !c.quick {
		return 3 * c.runs
	}
	return c.runs
}

// start starts the contestants. Those whose programs are missing are left out.
func (c *contest) start(ctx context.Context) (err error) {
	for _, who := range c.contestants {
		if who.server, err = who.start(ctx); err == nil {
			continue
		}
		if err = c.skip(who, err); err != nil {
			return fmt.Errorf("starting %s: %w", who, err)
		}
	}
	c.contestants = slices.DeleteFunc(c.contestants, func(who *contestant) bool { return who.server == nil })
	return nil
}

func (c *contest) stop() {
	for _, who := range c.contestants {
		if who.server != nil {
			who.server.Stop()
		}
	}
}

// turns lets each contestant serve once. Another one begins each time.
func (c *contest) turns(ctx context.Context, cond condition, run int) error {
	for i := range c.contestants {
		who := c.contestants[(i+run)%len(c.contestants)]
		err := c.round(ctx, who.under(cond), run+1, func() error { return c.serve(ctx, who, cond, run+1) })
		if err != nil {
			return fmt.Errorf("%d clients: %w", cond.clients, err)
		}
	}
	return nil
}

// longQueue is the time that a queue may take to get empty by itself. HAProxy
// sends on its queue when the clients have gone, and now and then Debian's
// stands still for good.
const longQueue = time.Second

func (c *contest) serve(ctx context.Context, who *contestant, cond condition, run int) error {
	plan := load.Plan{Addrs: who.server.Addrs, Clients: cond.clients, Warmup: c.window / 4, Window: c.window}
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
	c.note(who.under(cond), run, outcome)
	if !outcome.Settled || time.Duration(cond.clients)*cond.hold > longQueue {
		if err := who.restart(ctx); err != nil {
			return fmt.Errorf("starting it again: %w", err)
		}
	}
	// Requests whose clients are gone are still on their way.
	time.Sleep(100*time.Millisecond + time.Duration(cond.clients)*100*time.Microsecond)
	return c.noteInside(ctx, who, cond, run)
}

func (c *contest) note(at results.Case, run int, o *load.Outcome) {
	if failed := o.Failures + o.Others; failed > 0 {
		c.set.Add(at, run, failMetric, float64(failed))
		c.say("%s, %d clients: %d requests failed (%d with a status other than 200): %v", at, at.Clients, failed, o.Others, o.Failure)
	}
	if !o.Settled {
		c.set.Add(at, run, stalledMetric, 1)
		c.say("%s, %d clients: not every client had an answer in time; the run does not count", at, at.Clients)
		return
	}
	c.set.Add(at, run, rateMetric, o.Rate())
	c.set.Add(at, run, medianMetric, milliseconds(results.Quantile(o.Waits, 0.5)))
	c.set.Add(at, run, lateMetric, milliseconds(results.Quantile(o.Waits, 0.99)))
	c.say("run %d, %4d clients, hold %5s: %-26s %8.0f/s", run, at.Clients, at.Hold, at, o.Rate())
}

// noteInside makes sure that the fast ones keep their promise.
func (c *contest) noteInside(ctx context.Context, who *contestant, cond condition, run int) error {
	if c.backend == nil {
		return nil
	}
	most, err := c.backend.Most(ctx)
	if err != nil {
		return err
	}
	c.set.Add(who.under(cond), run, insideMetric, float64(most))
	if who.serial && most > 1 {
		return fmt.Errorf("%d were inside at once", most)
	}
	return nil
}

// serverTable has a row for each server with each number of clients.
func serverTable(s results.Set, title, ratio string, base results.Subject, hold time.Duration) table {
	cases := slices.DeleteFunc(byClients(s), func(c results.Case) bool { return c.Hold != hold })
	return tabulate(s, title, cases,
		column{"clients, server", func(s results.Set, c results.Case) string {
			name := results.Thousands(strconv.Itoa(c.Clients)) + ", " + c.Subject.String()
			if stalled := s.Summary(c, stalledMetric).N; stalled > 0 {
				name += fmt.Sprintf(" (%d more runs stood still)", stalled)
			}
			return name
		}},
		spreadColumn("requests a second", rateMetric, itself),
		ratioColumn(ratio, rateMetric, withSubject(base)),
		medianColumn("median wait, ms", medianMetric),
		spreadColumn("99th percentile, ms", lateMetric, itself))
}

// byClients lists the cases in the order of clients and of subjects as they
// were first measured. The contestants take turns, so that is not the order of
// the records.
func byClients(s results.Set) []results.Case {
	subjects := s.Subjects(rateMetric)
	return slices.SortedStableFunc(slices.Values(s.Cases(rateMetric)), func(a, b results.Case) int {
		return cmp.Or(
			cmp.Compare(a.Hold, b.Hold),
			cmp.Compare(a.Clients, b.Clients),
			cmp.Compare(slices.Index(subjects, a.Subject), slices.Index(subjects, b.Subject)),
			cmp.Compare(a.Processes, b.Processes),
		)
	})
}

func holdsOf(s results.Set) (holds []time.Duration) {
	for _, c := range s.Cases(rateMetric) {
		holds = append(holds, c.Hold)
	}
	slices.Sort(holds)
	return slices.Compact(holds)
}
