package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/report"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// tolerated is how much more of the processor a request may take: more than that is
// worth an alarm.
const tolerated = 1.03

// guardAgainst has Caddy of a commit and of this checkout take turns. It fails if this
// checkout takes more of the processor for a request, in any case, and chance can hardly
// be why.
func (b *bench) guardAgainst(ctx context.Context, commit string) error {
	program, err := b.buildCommit(ctx, commit)
	if err != nil {
		return err
	}
	backend, err := server.StartBackend(ctx)
	if err != nil {
		return err
	}
	direct := contest{bench: b, contestants: pairs(b.caddy, program, ""), seconds: 1}
	proxied := contest{bench: b, contestants: pairs(b.caddy, program, backend.Addr), upstream: backend, seconds: 1}
	return errors.Join(
		direct.judge(ctx, "respond", commit, each([]int{1, plottedClients}, 0)),
		proxied.judge(ctx, "reverse_proxy", commit, each([]int{plottedClients}, 0)))
}

// buildCommit builds Caddy from a commit.
func (b *bench) buildCommit(ctx context.Context, commit string) (string, error) {
	dir := filepath.Join(b.home, "before")
	const unpack = `mkdir "$1" && git -C .. archive "$2" | tar -xC "$1"`
	if out, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", unpack, "-", dir, commit).CombinedOutput(); err != nil {
		return "", fmt.Errorf("checking out %s: %w\n%s", commit, err, out)
	}
	return buildCaddy(ctx, dir, dir)
}

const suffixBefore = ", before"

// pairs are the Caddys of both, with each engine. Without a queue, they are the same.
func pairs(now, before, upstream string) (all []contestant) {
	then := caddies(before, upstream, "")
	for i, who := range caddies(now, upstream, "")[1:] {
		then[i+1].name += suffixBefore
		all = append(all, then[i+1], who)
	}
	return all
}

// judge has both take turns, and prints the ratios with the intervals in which they lie
// with a certainty of 95 %.
func (c *contest) judge(ctx context.Context, name, commit string, conditions []figures.Case) error {
	s, err := c.bench.measure(ctx, suite{name: name, measure: func(ctx context.Context, b *bench) error {
		return c.compare(ctx, b.rounds, conditions)
	}})
	if err != nil {
		return err
	}
	return verdict(s, name, commit)
}

// verdict is an error if a request takes more of the processor than it is tolerated.
func verdict(s *figures.Set, name, commit string) error {
	ratios := func(c figures.Case) figures.Summary { return figures.Interval(s.Ratios(c, work, c.Who+suffixBefore)) }
	then := report.Column{Head: "before", Cell: func(s *figures.Set, c figures.Case) string {
		c.Who += suffixBefore
		return report.Number(s.Of(c, work).Median)
	}}
	ratio := report.Column{Head: "ratio", Cell: func(_ *figures.Set, c figures.Case) string { return report.Range(ratios(c)) }}
	cases := slices.DeleteFunc(s.Cases(work), func(c figures.Case) bool { return !isOurs(c) })
	fmt.Println(report.Tabulate(s, "Microseconds of the processor for a request, `"+name+"`, beside "+commit+".", cases,
		report.Label("clients, server", clientsAndWho), then, report.Median("now", work), ratio))
	fmt.Println(circumstances(s))
	var errs []error
	for _, c := range cases {
		if r := ratios(c); r.Least > tolerated {
			errs = append(errs, fmt.Errorf("%s, %s: a request takes more of the processor than in %s: %s times", name, clientsAndWho(c), commit, report.Range(r)))
		}
	}
	return errors.Join(errs...)
}
