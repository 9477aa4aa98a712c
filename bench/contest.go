package main

import (
	"context"
	"errors"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// contestant is a server that takes part in a comparison.
type contestant struct {
	name   string
	config server.Config
}

// contest has servers serve in turns.
type contest struct {
	*bench
	contestants []contestant
	path        func(hold time.Duration) string // of a request upstream; nil if the servers answer by themselves
	seconds     int                             // of each run
}

// The figures of a contest.
const (
	rate = "requests/s"
	wait = "median ms"
	late = "p99 ms"
	work = "processor µs" // of the server's process, for a request
)

// serving is a server that clients ask for a while.
type serving struct {
	*server.Server
	url              string
	clients, seconds int
}

// compare has the contestants serve under each of the conditions, each time as a new
// process.
func (c *contest) compare(ctx context.Context, rounds int, conditions []figures.Case) error {
	var trials []trial
	for _, at := range conditions {
		for _, who := range c.contestants {
			at.Who = who.name
			trials = append(trials, trial{at, func(ctx context.Context) (figures.Values, error) { return c.serve(ctx, who, at) }})
		}
	}
	return c.alternate(ctx, rounds, trials)
}

// serve measures one run. A server whose queue stands still gets another try: Debian's
// HAProxy 2.6.12 hangs now and then.
func (c *contest) serve(ctx context.Context, who contestant, at figures.Case) (values figures.Values, err error) {
	for range 3 {
		values, err = c.serveOnce(ctx, who, at)
		if !errors.Is(err, errStill) {
			return values, err
		}
		say("STOOD STILL: %s", who.name)
	}
	return nil, err
}

func (c *contest) serveOnce(ctx context.Context, who contestant, at figures.Case) (figures.Values, error) {
	s, err := server.Start(ctx, who.config, c.home)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	r := serving{Server: s, url: "http://" + s.Addr, clients: at.Clients, seconds: c.seconds}
	if c.path != nil {
		r.url += c.path(at.Hold)
	}
	return c.speed(ctx, r)
}

// speed is how fast a server is, and how much of the processor it takes.
func (b *bench) speed(ctx context.Context, r serving) (figures.Values, error) {
	before, err := r.ProcessorTime()
	if err != nil {
		return nil, err
	}
	o, err := b.load(ctx, r)
	if err != nil {
		return nil, err
	}
	after, err := r.ProcessorTime()
	return figures.Values{
		rate: float64(o.Requests) / float64(o.Micros) * 1e6,
		wait: o.Median / 1e3, late: o.P99 / 1e3,
		work: float64((after - before).Nanoseconds()) / 1e3 / float64(o.Requests),
	}, err
}

// The Caddys of the contests. Lock files are on a disk.
const (
	caddyFree   = "Caddy, no queue"
	caddyMemory = "Orderly, memory"
	caddyFile   = "Orderly, lock files"
)

// caddies are a Caddy without a queue and one with each engine.
func caddies(program, upstream, php string) []contestant {
	all := []contestant{{name: caddyFree}, {name: caddyMemory}, {name: caddyFile}}
	for i, engine := range []string{"", "memory", "file"} {
		all[i].config = server.Config{Program: program, Upstream: upstream, PHP: php, Engine: engine}
	}
	return all
}
