//go:build linux

package main

import (
	"context"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite slow has clients that read slowly, or not at all. Their lines are imitated
// in the load generator: small segments, small buffers, paced reads. The groups are the
// questions.
var slowSuite = suite{name: "slow", measure: measureSlow, tables: slowTables}

const (
	stuckGroup = "stuck"
	linesGroup = "lines"
	quickGroup = "quick"

	slowPage   = 200_000 // bytes
	largePage  = 7_000_000
	slowLine   = 1_000_000 / 8 // bytes a second
	stuckReads = 5
	answerMost = 10 * time.Second
)

func measureSlow(ctx context.Context, b *bench) error {
	var trials []trial
	for _, who := range b.buffering() {
		for _, size := range []int{slowPage, largePage} {
			at := who.Case
			at.Group, at.Clients, at.Bytes = stuckGroup, stuckReads, size
			trials = append(trials, b.startedFor(who, at, func(ctx context.Context, addrs []string) (figures.Values, error) {
				return answerBehind(ctx, load.Plan{Addrs: addrs, Path: b.backend.Path(0, size), Clients: stuckReads, Line: slowLine}, b.backend.Path(0, 0))
			}))
		}
		at := who.Case
		at.Group, at.Clients, at.Bytes = linesGroup, pick(b.quick, 100, 1000), slowPage
		trials = append(trials, b.startedFor(who, at, func(ctx context.Context, addrs []string) (figures.Values, error) {
			plan := load.Plan{Addrs: addrs, Path: b.backend.Path(time.Millisecond, slowPage), Clients: at.Clients, Line: slowLine, Impatient: true,
				Warmup: pick(b.quick, time.Second, 4*time.Second), Window: pick(b.quick, 2*time.Second, 8*time.Second)}
			o, err := load.Run(ctx, plan)
			if err != nil {
				return nil, err
			}
			return o.Values(), nil
		}))
	}
	if err := b.alternate(ctx, min(b.runs, 2), trials...); err != nil {
		return err
	}
	return b.measureBuffers(ctx)
}

// measureBuffers asks what the buffer costs those who read at once.
func (b *bench) measureBuffers(ctx context.Context) error {
	for _, handler := range []string{"respond ok", b.reverseProxy()} {
		c := &contest{bench: b}
		for _, size := range []string{"256KiB", "0"} {
			who := b.buffered(size, handler)
			who.Group, who.Setting = quickGroup, "respond"
			if handler != "respond ok" {
				who.Setting, c.upstream = "reverse_proxy", b.backend
			}
			c.contestants = append(c.contestants, who)
		}
		if err := c.compare(ctx, each([]int{1, 32}, 0)); err != nil {
			return err
		}
	}
	return nil
}

// buffered is a Caddy with a buffer for responses of a size.
func (b *bench) buffered(size, handler string) *contestant {
	who := b.serializing(b.disk, handler, "response_buffer "+size)
	who.Contestant, who.FileSystem = "serialize, response_buffer "+size, ""
	return who
}

// buffering are the servers of one request at a time, with what they do about slow
// readers.
func (b *bench) buffering() []*contestant {
	proxy := b.reverseProxy()
	return []*contestant{
		b.buffered("256KiB", proxy), b.buffered("8MiB", proxy), b.buffered("0", proxy),
		b.peer(haproxyOne, servers.HAProxy{Backend: b.backend.Addr, MaxConn: 1}.Program()),
		b.peer(nginxLimit, b.limitingNginx()),
		b.peer(qosQueue, b.qosApache()),
	}
}

// startedFor is a trial with a new server, whose promise the backend judges.
func (b *bench) startedFor(who *contestant, at figures.Case, measure func(context.Context, []string) (figures.Values, error)) trial {
	return b.started(who, at, func(ctx context.Context, server *servers.Server) (figures.Values, error) {
		values, err := measure(ctx, server.Addrs)
		if err != nil {
			return nil, err
		}
		return values, (&contest{upstream: b.backend}).guard(ctx, who, values)
	})
}

// answerBehind asks for a small answer while clients have asked for large ones that
// they do not read.
func answerBehind(ctx context.Context, stuck load.Plan, path string) (figures.Values, error) {
	disperse, err := load.Gather(ctx, stuck)
	defer disperse()
	if err != nil {
		return nil, err
	}
	time.Sleep(500 * time.Millisecond)
	status, took, err := load.Once(ctx, stuck.Addrs[0], path, answerMost)
	switch {
	case err != nil:
		return figures.Values{figures.Stalled: 1}, nil
	case status != 200:
		return figures.Values{figures.Failed: 1}, nil
	}
	return figures.Values{figures.Answer: figures.Milliseconds(took)}, nil
}

func slowTables(s figures.Set) []table {
	of := func(m figures.Metric, group string, size int) []figures.Case {
		return only(inOrder(s, m, byConditions), func(c figures.Case) bool { return c.Group == group && (size == 0 || c.Bytes == size) })
	}
	server := label("server", func(c figures.Case) string { return c.Contestant })
	answer := func(head string, size int) column {
		return column{head, func(s figures.Set, c figures.Case) string {
			c.Bytes = size
			switch {
			case s.Summary(c, figures.Stalled).N > 0:
				return "not within 10 s"
			case s.Summary(c, figures.Failed).N > 0:
				return "refused"
			}
			return rangeText(s.Summary(c, figures.Answer))
		}}
	}
	return []table{
		tabulate(s, "A small request behind five clients that read nothing of their responses: milliseconds to its answer.",
			of(figures.Others, stuckGroup, slowPage), server, answer("they requested 200 KB each", slowPage), answer("for 7 MB each", largePage)),
		tabulate(s, "Clients with lines of 1 Mbit/s ask for pages of 200 KB, one at a time inside.", of(figures.Rate, linesGroup, 0),
			server, label("clients", clients), spread("pages a second", figures.Rate), median("refusals a second", figures.Refused),
			median("median time of a page, ms", figures.Median)),
		tabulate(s, "What the buffer costs clients that read at once.", of(figures.Rate, quickGroup, 0),
			server, label("in front of", func(c figures.Case) string { return c.Setting }), label("clients", clients),
			spread("requests a second", figures.Rate),
			ratio("of that without", figures.Rate, instead("serialize, response_buffer 0")), median("median wait, ms", figures.Median)),
	}
}
