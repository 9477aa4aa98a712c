package main

import (
	"math/rand/v2"
	"slices"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// kind is how a queue is used.
type kind uint8

const (
	exclusive kind = iota // one inside
	limited               // up to limit inside
	mixed                 // readers and writers
)

// testQueue is a queue for which the processes compete.
type testQueue struct {
	prefix string
	kind   kind
	weight int    // how often it is entered, relative to the others
	group  string // the group of its arrivals, for pauses
	keep   int    // if more than this wait, the first is superseded; 0 means no limit
}

// limit is how many may be inside a limited queue.
const limit = 3

// testQueues have similar prefixes: each must be a separate queue.
var testQueues = []testQueue{
	{prefix: "a_", kind: exclusive, weight: 40},
	{prefix: "a", kind: exclusive, weight: 5},
	{prefix: "a_b_", kind: exclusive, weight: 5, group: "{letters}_"},
	{prefix: "a0", kind: exclusive, weight: 5},
	{prefix: "a1", kind: exclusive, weight: 5},
	{prefix: "", kind: exclusive, weight: 5},
	{prefix: "a_0000", kind: exclusive, weight: 5},
	{prefix: "limited_", kind: limited, weight: 15},
	{prefix: "mixed_", kind: mixed, weight: 15, group: "{letters}_"},
}

// latestQueues are used only with the fault "supersede".
var latestQueues = []testQueue{
	{prefix: "latest_", kind: exclusive, weight: 15, keep: 1},
	{prefix: "latest_limited_", kind: limited, weight: 8, keep: 2},
	{prefix: "latest_mixed_", kind: mixed, weight: 8, keep: 4, group: "{letters}_"},
}

// queues are the queues of a run.
func queues(supersede bool) []testQueue {
	if supersede {
		return slices.Concat(testQueues, latestQueues)
	}
	return testQueues
}

func randomQueue(r *rand.Rand, queues []testQueue) int {
	total := 0
	for _, q := range queues {
		total += q.weight
	}
	n := r.IntN(total)
	for i, q := range queues {
		if n -= q.weight; n < 0 {
			return i
		}
	}
	return 0
}

// pausable returns the names that can be paused, of queues and of groups. It also returns
// the queues of each name.
func pausable(queues []testQueue) (names []string, of map[string][]int) {
	of = make(map[string][]int)
	for i, q := range queues {
		if q.prefix != "" { // a queue without a name cannot be paused
			names = append(names, q.prefix)
			of[q.prefix] = []int{i}
		}
	}
	for i, q := range queues {
		if q.group == "" {
			continue
		}
		if of[q.group] == nil {
			names = append(names, q.group)
		}
		of[q.group] = append(of[q.group], i)
	}
	return names, of
}

// randomRule returns a rule for an arrival in a queue.
func (q testQueue) randomRule(r *rand.Rand) serializer.Rule {
	switch q.kind {
	case limited:
		return serializer.Rule{Limit: limit}
	case mixed:
		return serializer.Rule{Shared: r.IntN(10) < 8}
	}
	return serializer.Rule{}
}

// arrival is an arrival in a queue, by a patient caller.
func (q testQueue) arrival(r *rand.Rand) serializer.Arrival {
	return serializer.Arrival{
		Queue:      q.prefix,
		Group:      q.group,
		Rule:       q.randomRule(r),
		MaxWaiting: q.keep,
		DropOldest: q.keep > 0,
		Timeout:    longTimeout,
		Requester:  anybody{},
	}
}

// anybody marks local tickets in lists.
type anybody struct{}

func (anybody) Request() (r serializer.Request) { return r }
