//go:build unix

package integration_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

var (
	edgesFor     = flag.Duration("edges", 20*time.Second, "how long TestEdges runs")
	edgesSeed    = flag.Uint64("edges.seed", 0, "the first seed of TestEdges; 0 is one at random")
	edgesWithout = flag.String("edges.without", "", "features that TestEdges leaves out, with commas in between")
	edgesCase    = flag.String("edges.case", "", "the only case of TestEdges, as it was printed")
	edgesGoOn    = flag.Bool("edges.continue", false, "TestEdges goes on after a case has failed")
)

// Random configurations of nested queues, error routes, rewrites and named routes meet
// random clients, which hang up, stall and break off their bodies. The upstream must
// never see two requests together that must be alone, nor a request that was refused. No
// turn may last longer than necessary, and every client that reads gets an answer.
func TestEdges(t *testing.T) {
	t.Parallel()
	if *edgesCase != "" {
		c := new(edgeCase)
		check(t, json.Unmarshal([]byte(*edgesCase), c))
		found, err := newEdgeBench(t).run(c)
		check(t, err)
		if len(found) > 0 {
			t.Errorf("%v\n%s", found, c)
		}
		return
	}
	first := cmp.Or(*edgesSeed, rand.Uint64N(1<<32))
	t.Logf("the first seed is %d", first)
	var given atomic.Uint64
	var failed atomic.Bool
	end := time.Now().Add(*edgesFor)
	for i := range 3 { // at the same time: most of it is waiting
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newEdgeBench(t)
			for time.Now().Before(end) && !failed.Load() {
				c := generateEdges(first+given.Add(1)-1, *edgesWithout)
				found, err := b.run(c)
				failed.CompareAndSwap(false, (err != nil || len(found) > 0) && !*edgesGoOn)
				if err != nil {
					t.Fatalf("seed %d: %v", c.Seed, err)
				}
				if len(found) > 0 {
					t.Errorf("%v\n%s", found, c)
				}
			}
			t.Logf("%d cases", b.cases)
		})
	}
}

// Without queues, the cases must fail. Otherwise, the test above would prove nothing.
func TestEdgesWithoutQueues(t *testing.T) {
	t.Parallel()
	b := newEdgeBench(t)
	b.unguarded = true
	for seed := range uint64(10) {
		found, err := b.run(generateEdges(1+seed, ""))
		check(t, err)
		if slices.ContainsFunc(found, func(v *violation) bool { return v.kind == "two inside" }) {
			return
		}
	}
	t.Error("10 cases without queues, and never two inside")
}
