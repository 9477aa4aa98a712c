//go:build unix

package integration_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

var (
	edgesFor     = flag.Duration("edges", 20*time.Second, "how long TestEdges runs")
	edgesSeed    = flag.Uint64("edges.seed", 0, "the first seed of TestEdges, further cases have the following ones; 0 is every second case from seed 1, and the others from one at random")
	edgesWithout = flag.String("edges.without", "", "features that TestEdges leaves out, with commas in between")
	edgesCase    = flag.String("edges.case", "", "the only case of TestEdges, as it was printed")
	edgesShrink  = flag.Duration("edges.shrink", time.Minute, "how long TestEdges shrinks a case that fails")
	edgesGoOn    = flag.Bool("edges.continue", false, "TestEdges goes on after a case has failed, and does not shrink it")
)

// edgeBenches is how many cases run at the same time. Most of their time is
// waiting.
const edgeBenches = 3

// Random configurations of nested queues, error routes, rewrites and named routes meet
// random clients, which hang up, stall and break off their bodies. The upstream must
// never see two requests together that must be alone, nor a request that was refused. No
// turn may last longer than necessary, and every client that reads gets an answer.
func TestEdges(t *testing.T) {
	t.Parallel()
	without, err := parseFeatures(*edgesWithout)
	check(t, err)
	if *edgesCase != "" {
		c := new(edgeCase)
		check(t, json.Unmarshal([]byte(*edgesCase), c))
		found, err := newEdgeBench(t).run(c)
		check(t, err)
		report(t, c, found)
		return
	}
	series := &edgeSeries{without: without, end: time.Now().Add(*edgesFor), known: *edgesSeed, unknown: *edgesSeed}
	if *edgesSeed == 0 {
		series.known, series.unknown = 1, rand.Uint64N(1<<32)
		t.Logf("the first random seed is %d", series.unknown)
	}
	for i := range edgeBenches {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			series.run(t, newEdgeBench(t))
		})
	}
}

// edgeSeries gives out cases.
type edgeSeries struct {
	without map[string]bool
	end     time.Time
	known   uint64 // the first of the seeds that every run has
	unknown uint64 // the first of those that are this run's own; or the same
	given   atomic.Uint64
	failed  atomic.Bool
}

// next is the next case, and its number.
func (s *edgeSeries) next() (c *edgeCase, n uint64) {
	n = s.given.Add(1)
	seed := s.known + n - 1
	if s.known != s.unknown {
		seed = []uint64{s.unknown, s.known}[n%2] + (n-1)/2
	}
	return generateEdges(seed, s.without), n
}

// run runs cases until the time is over, or one has failed.
func (s *edgeSeries) run(t *testing.T, b *edgeBench) {
	cases := 0
	for time.Now().Before(s.end) && !s.failed.Load() {
		c, n := s.next()
		cases++
		found, err := b.run(c)
		if err != nil {
			s.failed.Store(true)
			t.Fatalf("seed %d: %v", c.Seed, err)
		}
		if len(found) == 0 {
			continue
		}
		t.Errorf("seed %d, case %d: %v", c.Seed, n, found)
		if *edgesGoOn {
			continue
		}
		s.failed.Store(true)
		c, found = b.shrink(c, found, *edgesShrink)
		report(t, c, found)
	}
	t.Logf("%d cases", cases)
}

func report(t *testing.T, c *edgeCase, found []*violation) {
	t.Helper()
	if len(found) == 0 {
		return
	}
	for _, v := range found {
		t.Errorf("%s", v)
	}
	t.Logf("the case, as small as it could be made:\n%s", c)
}

// Without queues, the cases must fail. Otherwise, the test above would prove nothing.
func TestEdgesWithoutQueues(t *testing.T) {
	t.Parallel()
	b := newEdgeBench(t)
	b.unguarded = true
	for seed := range uint64(10) {
		found, err := b.run(generateEdges(1+seed, nil))
		check(t, err)
		for _, v := range found {
			if v.kind == "two inside" {
				t.Logf("seed %d: %v", 1+seed, v)
				return
			}
		}
	}
	t.Error("10 cases without queues, and never two inside")
}
