package storetest

import (
	"sync"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// together reports whether callers may be inside at the same time: only readers or only
// writers, and no more than each of them allows. This is the rule of package queue once more,
// so that the suite does not judge that package by itself.
func together(rules ...serializer.Rule) bool {
	for _, r := range rules {
		most := r.Limit
		if !r.Shared {
			most = max(most, 1)
		}
		if r.Shared != rules[0].Shared || most > 0 && len(rules) > most {
			return false
		}
	}
	return true
}

// judge watches all callers that enter. Those inside must be allowed to be there together, and
// no ticket may be issued twice. Two that may not be inside together enter in the order of
// their tickets.
type judge struct {
	mu      sync.Mutex
	inside  map[*caller]bool
	entered map[string][]*caller // by queue: all
}

func newJudge() judge {
	return judge{inside: make(map[*caller]bool), entered: make(map[string][]*caller)}
}

// enter records that a caller has its turn.
func (j *judge) enter(c *caller) {
	j.mu.Lock()
	defer j.mu.Unlock()
	queue, token := c.arrival.Queue, c.turn.Token()
	for _, other := range j.entered[queue] {
		switch last := other.turn.Token(); {
		case last == token:
			c.crowd.Errorf("%v: token %d was issued twice", c, token)
		case last > token && !together(other.arrival.Rule, c.arrival.Rule):
			c.crowd.Errorf("%v: entered with token %d after %v with %d", c, token, other, last)
		}
	}
	j.entered[queue], j.inside[c] = append(j.entered[queue], c), true
	var rules []serializer.Rule
	for other := range j.inside {
		if other.arrival.Queue == queue {
			rules = append(rules, other.arrival.Rule)
		}
	}
	if !together(rules...) {
		c.crowd.Errorf("%v: inside together are now %+v", c, rules)
	}
}

// leave records that a caller is about to leave.
func (j *judge) leave(c *caller) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.inside, c)
}
