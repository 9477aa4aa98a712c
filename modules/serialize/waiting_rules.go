package serialize

import (
	"net/http"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// mayClaim reports whether a browser's ticket gives it a turn at this handler. The ticket
// may be from another handler of the queue that lets in more at a time. Then others may
// be inside where this request would have to be alone.
//
// One from an earlier configuration is let in by the rule of that, as are all requests
// that wait while a configuration is reloaded.
func (s *Handler) mayClaim(k *keptTicket, r *http.Request) bool {
	rule := s.ruleOf(r)
	return isAsStrict(k.rule, rule) || k.rule.Shared == rule.Shared && k.rules.Precedes(s.rules)
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
