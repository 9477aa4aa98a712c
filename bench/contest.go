//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// contestant is a server that takes part in a comparison: a Caddy, or a peer.
type contestant struct {
	figures.Case      // what it is; the conditions come from the contest
	serial       bool // promises that one at a time is inside
	peer         servers.Program
	caddy        servers.Caddy // whose directives have LOCKS for a new directory below locks
	locks        string
	server       *servers.Server
}

// launch starts a contestant.
func (b *bench) launch(ctx context.Context, who *contestant) (*servers.Server, error) {
	if who.peer.Name != "" {
		return who.peer.Start(ctx, b.home)
	}
	caddy := who.caddy
	caddy.Processes = who.Processes
	if caddy.Program == "" {
		var err error
		if caddy.Program, err = b.caddyProgram(ctx); err != nil {
			return nil, err
		}
	}
	if who.locks != "" {
		dir, err := fresh(who.locks)
		if err != nil {
			return nil, err
		}
		caddy.Directives = strings.ReplaceAll(caddy.Directives, "LOCKS", dir)
	}
	return caddy.Start(ctx, b.home)
}

// contest has servers serve in turns.
type contest struct {
	*bench
	upstream    upstream // nil if the servers answer by themselves
	contestants []*contestant
	promised    bool // there are promises about the results
	weighed     bool // the servers' own processor time counts, too
}

// upstream is what stands behind the servers.
type upstream interface {
	Path(hold time.Duration, bytes int) string // of a request that takes so long inside
	Settle(context.Context) error              // waits until nobody comes any more

	// Observe returns what was seen since it was last asked, with how many were
	// inside at once.
	Observe(context.Context) (figures.Values, error)
}

// compare starts the contestants and has them serve under each of the conditions.
func (c *contest) compare(ctx context.Context, conditions []figures.Case) error {
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return err
	}
	for _, cond := range conditions {
		if most := mostClients(); cond.Clients > most {
			c.say("SKIPPED %d clients: the limit of open files allows %d; raise it with ulimit -n", cond.Clients, most)
			continue
		}
		var trials []trial
		for _, who := range c.contestants {
			at := who.under(cond)
			trials = append(trials, trial{at, func(ctx context.Context) (figures.Values, error) { return c.serve(ctx, who, at) }})
		}
		if err := c.alternate(ctx, c.repeats(cond), trials...); err != nil {
			return err
		}
	}
	return nil
}

// each is every number of clients with every hold.
func each(clients []int, holds ...time.Duration) (all []figures.Case) {
	for _, hold := range holds {
		for _, n := range clients {
			all = append(all, figures.Case{Clients: n, Hold: hold})
		}
	}
	return all
}

func (c *contestant) under(cond figures.Case) figures.Case {
	at := c.Case
	at.Clients, at.Hold, at.Bytes = cond.Clients, cond.Hold, cond.Bytes
	return at
}

// promisedClients is the number of clients that promises are about.
const promisedClients = 32

// repeats is how often each contestant has its turn: three times as often where the
// result decides about a promise.
func (c *contest) repeats(cond figures.Case) int {
	if c.promised && cond.Clients == promisedClients && !c.quick {
		return 3 * c.runs
	}
	return c.runs
}

// start starts the contestants. Those whose programs are missing are left out.
func (c *contest) start(ctx context.Context) (err error) {
	for _, who := range c.contestants {
		if who.server, err = c.launch(ctx, who); err == nil {
			continue
		}
		if err = c.skip(name(who.Case), err); err != nil {
			return fmt.Errorf("starting %s: %w", name(who.Case), err)
		}
	}
	c.contestants = slices.DeleteFunc(c.contestants, func(who *contestant) bool { return who.server == nil })
	return nil
}

// started is a trial with a new server.
func (b *bench) started(who *contestant, at figures.Case, measure func(context.Context, *servers.Server) (figures.Values, error)) trial {
	return trial{at, func(ctx context.Context) (figures.Values, error) {
		server, err := b.launch(ctx, who)
		if err != nil {
			return nil, b.skip(conditions(at), err)
		}
		defer server.Stop()
		return measure(ctx, server)
	}}
}

func (c *contest) stop() {
	for _, who := range c.contestants {
		if who.server != nil {
			who.server.Stop()
		}
	}
}

// longQueue is the time that a queue may take to get empty by itself. HAProxy sends on
// its queue when the clients have gone, and now and then Debian's stands still for good.
const longQueue = time.Second

// serve has a contestant serve for a while.
func (c *contest) serve(ctx context.Context, who *contestant, at figures.Case) (figures.Values, error) {
	plan := load.Plan{Addrs: who.server.Addrs, Clients: at.Clients, Warmup: c.window / 4, Window: c.window}
	if c.upstream != nil {
		plan.Path = c.upstream.Path(at.Hold, at.Bytes)
		plan.Window = max(c.window, 50*at.Hold)
		if err := c.upstream.Settle(ctx); err != nil {
			return nil, err
		}
	}
	var outcome *load.Outcome
	worked, err := who.server.Worked(func() (err error) {
		outcome, err = load.Run(ctx, plan)
		return err
	})
	if err != nil {
		return nil, err
	}
	if outcome.Failure != nil {
		c.say("%s: %v", conditions(at), outcome.Failure)
	}
	if !outcome.Settled || who.peer.Lingers || time.Duration(at.Clients)*at.Hold > longQueue {
		who.server.Stop()
		if who.server, err = c.launch(ctx, who); err != nil {
			return nil, fmt.Errorf("starting it again: %w", err)
		}
	}
	// Requests whose clients are gone are still on their way.
	time.Sleep(100*time.Millisecond + time.Duration(at.Clients)*100*time.Microsecond)
	values := outcome.Values()
	if c.weighed && outcome.Total > 0 {
		values[figures.Work] = figures.Microseconds(float64(worked) / float64(outcome.Total))
	}
	return values, c.guard(ctx, who, values)
}

// guard adds what the upstream has seen. It makes sure that the fast ones keep their
// promise.
func (c *contest) guard(ctx context.Context, who *contestant, values figures.Values) error {
	if c.upstream == nil {
		return nil
	}
	seen, err := c.upstream.Observe(ctx)
	if err != nil {
		return err
	}
	maps.Copy(values, seen)
	if most := seen[figures.Inside]; who.serial && most > 1 {
		return fmt.Errorf("%.0f were inside at once", most)
	}
	return nil
}

// The Caddys of several suites. The last one keeps lock files.
const (
	caddyFree   = "Caddy, free"
	caddyMemory = "serialize, memory"
	caddyFile   = "serialize, file"
)

// caddy is a Caddy with some directives.
func (b *bench) caddy(contestantName, directives string) *contestant {
	return &contestant{Case: figures.Case{Contestant: contestantName}, caddy: servers.Caddy{Directives: directives}}
}

// serializing is a Caddy that serializes the upstream, with lock files below dir, or
// in memory where dir is empty. There may be more subdirectives.
func (b *bench) serializing(dir, upstream string, more ...string) *contestant {
	who := b.caddy(caddyMemory, "")
	who.serial, who.locks = true, dir
	engine := "engine memory"
	if dir != "" {
		who.Contestant, who.FileSystem, engine = caddyFile, machine.FileSystem(dir), "path LOCKS"
	}
	lines := strings.Join(append([]string{engine}, more...), "\n\t")
	who.caddy.Directives = fmt.Sprintf("serialize {\n\t%s\n}\n%s", lines, upstream)
	return who
}

// caddies are the Caddy without a queue and those with one.
func (b *bench) caddies(upstream string) []*contestant {
	return []*contestant{
		b.caddy(caddyFree, upstream), b.serializing("", upstream), b.serializing(b.shm, upstream), b.serializing(b.disk, upstream),
	}
}

// as names a contestant.
func (c *contestant) as(group, contestantName string) *contestant {
	c.Group, c.Contestant = group, contestantName
	return c
}

// peer is a server that is not Caddy.
func (b *bench) peer(contestantName string, p servers.Program) *contestant {
	return &contestant{Case: figures.Case{Contestant: contestantName}, peer: p}
}

// reverseProxy is the directive that sends requests on. Its connections are kept, for
// any number of clients: by default it would keep 32.
func (b *bench) reverseProxy() string { return reverseProxy(b.backend) }

func reverseProxy(backend *servers.Backend) string {
	return fmt.Sprintf("reverse_proxy %s {\n\ttransport http {\n\t\tkeepalive_idle_conns_per_host 8192\n\t}\n}", backend.Addr)
}
