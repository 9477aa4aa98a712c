package main

import (
	"math/rand/v2"
	"strings"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// testQueue is a queue for which the processes compete.
type testQueue struct {
	prefix string
	limit  int  // how many may be inside; 0 means one
	mixed  bool // readers and writers
	slots  bool // each inside has one of as many slots as may be inside
	keep   int  // if more than this wait, the first is superseded; 0 means no limit
}

// queues have similar prefixes: each must be a separate queue.
var queues = []testQueue{
	{prefix: "a_"},
	{prefix: "a"},
	{prefix: "a_b_"},
	{prefix: "a0"},
	{prefix: ""},
	{prefix: "a_0000"},
	{prefix: "limited_", limit: 3},
	{prefix: "slots_", limit: 3, slots: true},
	{prefix: "mixed_", mixed: true},
	{prefix: "latest_", keep: 1},
	{prefix: "latest_limited_", limit: 3, keep: 2},
	{prefix: "latest_mixed_", mixed: true, keep: 4},
}

// randomQueue is the first one in a third of the cases.
func randomQueue(r *rand.Rand) int { return max(r.IntN(3*len(queues)/2)-len(queues)/2, 0) }

// pausable are names that can be paused: a queue without a name cannot.
var pausable = []string{"a_", "a", "a_b_", "a0", "limited_", "slots_", "mixed_", "latest_", "a*", "latest_*"}

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
	rule := serializer.Rule{Limit: q.limit, Shared: q.mixed && r.IntN(10) < 8}
	a := serializer.Arrival{Queue: q.prefix, Rule: rule, MaxWaiting: q.keep, DropOldest: q.keep > 0, Requester: anybody{}}
	if q.slots {
		a.Slots = func() []string { return slotNames }
	}
	return a
}

// slotNames are those of each queue with slots.
var slotNames = []string{"a", "b", "c"}

// anybody marks local tickets in lists.
type anybody struct{}

func (anybody) Request() (r serializer.Request) { return r }
