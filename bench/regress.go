//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// tolerated is how much slower a checkout may be: less than that is not worth an alarm.
const tolerated = 0.97

// guardWindow is how long each of its runs counts: many short ones tell more than a few
// long ones.
const guardWindow = 400 * time.Millisecond

// leastPairs is how many pairs of runs it takes to tell a difference from noise.
const leastPairs = 15

// guardAgainst has Caddy of a commit and of this checkout take turns. It fails if this
// checkout works more for a request or serves fewer a second, in any case, and chance
// can hardly be why.
func (b *bench) guardAgainst(ctx context.Context, commit string) (err error) {
	before, remove, err := b.buildCommit(ctx, commit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b.runs = max(b.runs, leastPairs)
	err = b.run(ctx, suite{name: "against", measure: func(ctx context.Context, b *bench) error {
		direct := &contest{bench: b, weighed: true, contestants: b.pair(before, "respond", "respond ok")}
		if err := direct.compare(ctx, each([]int{1, 32}, 0)); err != nil {
			return err
		}
		proxy := &contest{bench: b, weighed: true, upstream: b.backend, contestants: b.pair(before, "reverse_proxy", b.reverseProxy())}
		return proxy.compare(ctx, each([]int{32}, 0))
	}})
	if err != nil {
		return err
	}
	return judge(b.set, commit)
}

// buildCommit builds Caddy from a commit.
func (b *bench) buildCommit(ctx context.Context, commit string) (program string, remove func() error, err error) {
	root, err := servers.Root(ctx)
	if err != nil {
		return "", nil, err
	}
	git := func(args ...string) error {
		if out, err := exec.Command("git", append([]string{"-C", root, "worktree"}, args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("checking out %s: %w\n%s", commit, err, out)
		}
		return nil
	}
	dir := filepath.Join(b.home, "before")
	if err := git("add", "--detach", dir, commit); err != nil {
		return "", nil, err
	}
	remove = func() error { return git("remove", "--force", dir) }
	b.say("building caddy of %s", commit)
	if program, err = servers.BuildCaddy(ctx, dir, dir); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return program, remove, nil
}

const beforeSetting = "before"

// pair are the contestants of both, with each engine.
func (b *bench) pair(before, group, handler string) (all []*contestant) {
	for _, dir := range []string{"", b.disk} {
		then, now := b.serializing(dir, handler), b.serializing(dir, handler)
		then.caddy.Program, then.Setting = before, beforeSetting
		then.Group, now.Group = group, group
		all = append(all, then, now)
	}
	return all
}

// busy is how many percent of the machine other programs may use before the requests a
// second tell of them, and not of the checkout.
const busy = 10

// judge prints the ratios, with the intervals in which they are likely to lie. The
// servers' own processor time counts on any machine, the requests only on a calm one.
func judge(s figures.Set, commit string) error {
	before := func(c figures.Case) figures.Case { c.Setting = beforeSetting; return c }
	ratios := func(m figures.Metric) column {
		return column{"ratio", func(s figures.Set, c figures.Case) string { return rangeText(s.Interval(c, before(c), m)) }}
	}
	cases := only(inOrder(s, figures.Rate, byConditions), func(c figures.Case) bool { return c.Setting == "" })
	fmt.Print(tabulate(s, "This checkout beside "+commit+". The ratios lie within their brackets with 95 % of certainty.", cases,
		label("server", name), label("clients", clients), median("others use, %", figures.Others),
		at(before, median("requests a second before", figures.Rate)), median("now", figures.Rate), ratios(figures.Rate),
		at(before, median("µs of processor for one before", figures.Work)), median("now", figures.Work), ratios(figures.Work)))
	var errs []error
	for _, c := range cases {
		work, rate := s.Interval(c, before(c), figures.Work), s.Interval(c, before(c), figures.Rate)
		calm := s.Summary(c, figures.Others).Median <= busy
		if work.Min > 1/tolerated {
			errs = append(errs, fmt.Errorf("%s, %d clients: takes more of the processor than %s: %s", name(c), c.Clients, commit, rangeText(work)))
		} else if calm && rate.Max < tolerated {
			errs = append(errs, fmt.Errorf("%s, %d clients: slower than %s: %s", name(c), c.Clients, commit, rangeText(rate)))
		}
	}
	return errors.Join(errs...)
}
