package serialize

import (
	"slices"

	"go.uber.org/zap"
)

// A request that is inside one queue and comes to another one waits there. Two
// requests that come to two queues in opposite orders can wait for each other until
// a timeout. If the routes of a configuration lead through queues in opposite
// orders, the log says so when it is loaded.

// passage is a handler that requests come to.
type passage struct {
	queue  queueIdentity
	at     place
	number int // handlers are numbered in the order of the configuration
}

// pass adds a handler, and warns if requests come to its queue and to another one in
// opposite orders.
func (c *configuration) pass(p passage, log *zap.Logger) {
	p.number = len(c.passages)
	for _, outer := range c.passages {
		if !c.leads(outer, p) {
			continue
		}
		if first, second, reversed := c.reversed(outer.queue, p.queue); reversed {
			log.Warn("requests that come to two queues in opposite orders can wait for each other until a timeout; let all routes lead through them in the same order",
				zap.String("queue", outer.queue.prefix), zap.String("then", p.queue.prefix),
				zap.Stringer("at", outer.at), zap.Stringer("then_at", p.at),
				zap.Stringer("opposite_at", first.at), zap.Stringer("opposite_then_at", second.at))
			break
		}
	}
	c.passages = append(c.passages, p)
}

// leads reports whether requests that are inside the first queue can come to the
// second one, and wait there. One that has come to the second queue before the first
// one is inside already.
func (c *configuration) leads(first, second passage) bool {
	return first.queue != second.queue && first.at.precedes(second.at) &&
		!slices.ContainsFunc(c.passages[:first.number], func(earlier passage) bool { return earlier.queue == second.queue && earlier.at.precedes(first.at) })
}

// reversed finds handlers by which requests come to the inner queue first, and then
// to the outer one.
func (c *configuration) reversed(outer, inner queueIdentity) (first, second passage, found bool) {
	for i, first := range c.passages {
		if first.queue != inner {
			continue
		}
		j := slices.IndexFunc(c.passages[i+1:], func(second passage) bool { return second.queue == outer && c.leads(first, second) })
		if j >= 0 {
			return first, c.passages[i+1+j], true
		}
	}
	return first, second, false
}
