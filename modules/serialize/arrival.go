package serialize

import (
	"net/http"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/connection"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// engineRules are the engine's rules for most requests, and for those with shared methods.
func (s *Handler) engineRules() (rule, shared serializer.Rule) {
	if len(s.SharedMethods) == 0 {
		return serializer.Rule{Limit: s.Concurrency}, serializer.Rule{}
	}
	shared = serializer.Rule{Shared: true}
	if s.Concurrency > 1 {
		shared.Limit = s.Concurrency
	}
	return serializer.Rule{Limit: 1}, shared
}

// ruleOf is the engine's rule for a request.
func (s *Handler) ruleOf(r *http.Request) serializer.Rule {
	if s.isReader(r) {
		return s.shared
	}
	return s.rule
}

// describe fills in what the visit asks of its queue.
func (v *visit) describe(a *serializer.Arrival, r *http.Request) {
	v.handler.describe(a, r, v.queue)
	a.Requester, a.Revoke = v, v.revoke
	if v.handler.DryRun {
		a.Revoke = v.revokeDry
	}
}

// describe fills in what the handler asks of a queue for a request.
func (s *Handler) describe(a *serializer.Arrival, r *http.Request, queue string) {
	a.Queue = queue
	a.Client = connection.Peer(r)
	a.Rule = s.ruleOf(r)
	a.MaxWaiting = s.QueueLength
	a.DropOldest = s.WhenFull == dropOldest
	a.Timeout = time.Duration(*s.Timeout)
}

func (s *Handler) isReader(r *http.Request) bool { return slices.Contains(s.SharedMethods, r.Method) }
