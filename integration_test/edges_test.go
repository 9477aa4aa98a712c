//go:build unix

package integration_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var (
	edgesFor  = flag.Duration("edges", 10*time.Second, "how long TestEdges runs")
	edgesSeed = flag.Uint64("edges.seed", 0, "the seed of the only case of TestEdges; 0 makes cases at random")
)

// Random configurations of nested queues, error routes, rewrites and named routes meet
// random clients, which hang up, stall and break off their bodies. The upstream must
// never see two requests together that must be alone, nor a request that was refused. No
// ticket may remain, and every client that reads gets an answer.
func TestEdges(t *testing.T) {
	t.Parallel()
	for i := range 3 { // at the same time: most of it is waiting
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newEdgeBench(t)
			for end := time.Now().Add(*edgesFor); time.Now().Before(end) && !t.Failed(); {
				c := generateEdges(cmp.Or(*edgesSeed, rand.Uint64N(1<<32)), false)
				if found, err := b.run(c); err != nil || len(found) > 0 {
					t.Errorf("%v%v\n%s", err, found, c)
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
	for seed := range uint64(10) {
		found, err := b.run(generateEdges(1+seed, true))
		check(t, err)
		if strings.Contains(fmt.Sprint(found), "two inside: ") {
			return
		}
	}
	t.Error("10 cases without queues, and never two inside")
}
