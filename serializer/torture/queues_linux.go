package main

import (
	"math/rand/v2"

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
	weight int // how often it is entered
}

// limit is how many may be inside a limited queue.
const limit = 3

// testQueues have prefixes that look alike: each must be a queue of its own.
var testQueues = []testQueue{
	{"a_", exclusive, 40},
	{"a", exclusive, 5},
	{"a_b_", exclusive, 5},
	{"a0", exclusive, 5},
	{"a1", exclusive, 5},
	{"", exclusive, 5},
	{"a_0000", exclusive, 5},
	{"limited_", limited, 15},
	{"mixed_", mixed, 15},
}

func randomQueue(r *rand.Rand) int {
	total := 0
	for _, q := range testQueues {
		total += q.weight
	}
	n := r.IntN(total)
	for i, q := range testQueues {
		if n -= q.weight; n < 0 {
			return i
		}
	}
	return 0
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
