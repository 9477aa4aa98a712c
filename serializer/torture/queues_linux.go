package main

import (
	"math/rand/v2"
	"strings"

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
	keep   int // if more than this wait, the first is superseded; 0 means no limit
}

// limit is how many may be inside a limited queue.
const limit = 3

// queues have similar prefixes: each must be a separate queue.
var queues = []testQueue{
	{prefix: "a_", kind: exclusive},
	{prefix: "a", kind: exclusive},
	{prefix: "a_b_", kind: exclusive},
	{prefix: "a0", kind: exclusive},
	{prefix: "", kind: exclusive},
	{prefix: "a_0000", kind: exclusive},
	{prefix: "limited_", kind: limited},
	{prefix: "mixed_", kind: mixed},
	{prefix: "latest_", kind: exclusive, keep: 1},
	{prefix: "latest_limited_", kind: limited, keep: 2},
	{prefix: "latest_mixed_", kind: mixed, keep: 4},
}

// randomQueue is the first one in a third of the cases.
func randomQueue(r *rand.Rand) int { return max(r.IntN(3*len(queues)/2)-len(queues)/2, 0) }

// pausable are names that can be paused: a queue without a name cannot.
var pausable = []string{"a_", "a", "a_b_", "a0", "limited_", "mixed_", "latest_", "a*", "latest_*"}

// queuesOf returns the queues that a name of a pause stands for.
func queuesOf(name string) (of []int) {
	start, all := strings.CutSuffix(name, "*")
	for i, q := range queues {
		if q.prefix == name || all && strings.HasPrefix(q.prefix, start) {
			of = append(of, i)
		}
	}
	return of
}

// arrival is an arrival in a queue.
func (q testQueue) arrival(r *rand.Rand) serializer.Arrival {
	return serializer.Arrival{Queue: q.prefix, Rule: q.rule(r), MaxWaiting: q.keep, DropOldest: q.keep > 0, Requester: anybody{}}
}

func (q testQueue) rule(r *rand.Rand) serializer.Rule {
	switch q.kind {
	case limited:
		return serializer.Rule{Limit: limit}
	case mixed:
		return serializer.Rule{Shared: r.IntN(10) < 8}
	}
	return serializer.Rule{}
}

// anybody marks local tickets in lists.
type anybody struct{}

func (anybody) Request() (r serializer.Request) { return r }
