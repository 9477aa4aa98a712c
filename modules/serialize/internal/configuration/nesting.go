package configuration

import (
	"slices"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/routes"
)

// A request that is inside one queue and comes to another one waits there. Two
// requests that come to two queues in opposite orders can wait for each other until
// a timeout. If the routes of a configuration lead through queues in opposite
// orders, the log says so when it is loaded.

// passage is a handler that requests come to.
type passage struct {
	queue  queueIdentity
	at     routes.Place
	number int // handlers are numbered in the order of the configuration
}

// oppositeOrders are two passages from one queue to another, and two the other way.
type oppositeOrders struct{ outer, inner, first, second passage }

func (o *oppositeOrders) warn(log *zap.Logger) {
	log.Warn("requests that come to two queues in opposite orders can wait for each other until a timeout; let all routes lead through them in the same order",
		zap.String("queue", o.outer.queue.prefix), zap.String("then", o.inner.queue.prefix),
		zap.Stringer("at", o.outer.at), zap.Stringer("then_at", o.inner.at),
		zap.Stringer("opposite_at", o.first.at), zap.Stringer("opposite_then_at", o.second.at))
}

// passLocked adds a handler. It returns the first passages that it is in by which
// requests come to its queue and to another one in opposite orders, or nil.
func (c *configuration) passLocked(p passage) *oppositeOrders {
	p.number = len(c.passages)
	opposite := c.oppositeLocked(p)
	c.passages = append(c.passages, p)
	return opposite
}

func (c *configuration) oppositeLocked(p passage) *oppositeOrders {
	for _, outer := range c.passages {
		if !c.leadsLocked(outer, p) {
			continue
		}
		if first, second, reversed := c.reversedLocked(outer.queue, p.queue); reversed {
			return &oppositeOrders{outer, p, first, second}
		}
	}
	return nil
}

// leadsLocked reports whether requests that are inside the first queue can come to the
// second one, and wait there. One that has come to the second queue before the first
// one is inside already.
func (c *configuration) leadsLocked(first, second passage) bool {
	return first.queue != second.queue && first.at.Precedes(second.at) &&
		!slices.ContainsFunc(c.passages[:first.number], func(earlier passage) bool { return earlier.queue == second.queue && earlier.at.Precedes(first.at) })
}

// reversedLocked finds handlers by which requests come to the inner queue first, and then
// to the outer one.
func (c *configuration) reversedLocked(outer, inner queueIdentity) (first, second passage, found bool) {
	for i, first := range c.passages {
		if first.queue != inner {
			continue
		}
		j := slices.IndexFunc(c.passages[i+1:], func(second passage) bool { return second.queue == outer && c.leadsLocked(first, second) })
		if j >= 0 {
			return first, c.passages[i+1+j], true
		}
	}
	return first, second, false
}
