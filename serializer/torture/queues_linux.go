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

// testQueue is a queue that is fought over.
type testQueue struct {
	prefix string
	kind   kind
	weight int    // how often it is entered
	group  string // of its arrivals, for pauses
	keep   int    // how many may wait until the first of them is superseded; 0 is any number
}

// limit is how many may be inside a limited queue.
const limit = 3

// testQueues have prefixes that look alike: each must be a queue of its own.
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

// latestQueues are there with the fault "supersede".
var latestQueues = []testQueue{
	{prefix: "latest_", kind: exclusive, weight: 15, keep: 1},
	{prefix: "latest_limited_", kind: limited, weight: 8, keep: 2},
	{prefix: "latest_mixed_", kind: mixed, weight: 8, keep: 4, group: "{letters}_"},
}

// queues are those of a run.
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

// pausable are the names that can be paused: those of queues and of groups. It tells
// which queues each of them stands for.
func pausable(queues []testQueue) (names []string, of map[string][]int) {
	of = make(map[string][]int)
	for i, q := range queues {
		if q.prefix != "" { // a pause has a name
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

// randomRule is the rule of one arrival in a queue.
func (q testQueue) randomRule(r *rand.Rand) serializer.Rule {
	switch q.kind {
	case limited:
		return serializer.Rule{Limit: limit}
	case mixed:
		return serializer.Rule{Shared: r.IntN(10) < 8}
	}
	return serializer.Rule{}
}

// arrival is one at a queue, by a caller who is patient.
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

// anybody marks tickets of ours in lists.
type anybody struct{}

func (anybody) Request() (r serializer.Request) { return r }
