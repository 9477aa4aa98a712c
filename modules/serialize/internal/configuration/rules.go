package configuration

import "github.com/orderly-http/caddy-orderly/serializer"

// Rules are the rules by which the handlers of one configuration let requests into a
// queue.
type Rules struct {
	configuration uint64
	prefix        string
	rule, shared  serializer.Rule // of the first handler
	mixed         bool            // others differ
}

// noteRulesLocked adds those of a handler.
func (c *configuration) noteRulesLocked(queue queueIdentity, rule, shared serializer.Rule) *Rules {
	q := c.rules[queue]
	if q == nil {
		q = &Rules{configuration: c.number, prefix: queue.prefix, rule: rule, shared: shared}
		c.rules[queue] = q
	}
	q.mixed = q.mixed || q.rule != rule || q.shared != shared
	return q
}

// Precedes reports whether these rules became those of a later configuration.
func (q *Rules) Precedes(later *Rules) bool {
	return q.configuration != later.configuration && q.prefix == later.prefix && !q.mixed && !later.mixed
}
