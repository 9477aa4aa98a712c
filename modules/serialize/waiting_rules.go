package serialize

import (
	"net/http"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// queueRules are the rules by which the handlers of one configuration let requests into
// a queue.
type queueRules struct {
	configuration uint64
	prefix        string
	rule, shared  serializer.Rule // of the first handler
	mixed         bool            // others differ
}

// noteRules adds those of a handler.
func (c *configuration) noteRules(queue queueIdentity, rule, shared serializer.Rule) *queueRules {
	q := c.rules[queue]
	if q == nil {
		q = &queueRules{configuration: c.number, prefix: queue.prefix, rule: rule, shared: shared}
		c.rules[queue] = q
	}
	q.mixed = q.mixed || q.rule != rule || q.shared != shared
	return q
}

// mayClaim reports whether a browser's ticket gives it a turn at this handler. The ticket
// may be from another handler of the queue that lets in more at a time: then others may
// be inside where this request would have to be alone.
//
// One from an earlier configuration is let in by the rule of that, as are all requests
// that wait while a configuration is reloaded.
func (s *Handler) mayClaim(k *keptTicket, r *http.Request) bool {
	rule := s.ruleOf(r)
	return isAsStrict(k.rule, rule) || k.rule.Shared == rule.Shared && k.rules.precedes(s.rules)
}

// precedes reports whether these rules became those of a later configuration.
func (q *queueRules) precedes(later *queueRules) bool {
	return q.configuration != later.configuration && q.prefix == later.prefix && !q.mixed && !later.mixed
}

// isAsStrict reports whether one rule never admits a request beside more than another
// rule would.
func isAsStrict(one, other serializer.Rule) bool {
	if one.Alone() {
		return true
	}
	a, b := one.Capacity(), other.Capacity()
	return one.Shared == other.Shared && (b == 0 || a != 0 && a <= b)
}
