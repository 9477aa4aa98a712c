package serialize

import (
	"cmp"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// knownPrefix is what the metrics and the status page know of one configured prefix. There
// is one for each prefix as configured, so their number does not grow with traffic.
type knownPrefix struct {
	*telemetry.Counters
	prefix *queuename.Prefix
}

// handlers are those that have the prefix.
func (s *knownPrefix) handlers() []*Handler {
	return registered.handlersWhere(func(h *Handler) bool { return h.Prefix == s.Prefix })
}

// usageOf is what the handlers of a queue, or of a prefix, say of it together, and the paths of
// their engines, in order. If they differ, each limit is the widest. The queue is paused, or all those
// of the prefix, by one of the engines.
func usageOf(handlers []*Handler) (q queueview.Queue, paths []string) {
	for i, h := range handlers {
		if i == 0 {
			q.Limit, q.QueueLength = h.limit, h.QueueLength
		}
		q.Limit = serializer.Wider(q.Limit, h.limit)
		q.QueueLength = serializer.Wider(q.QueueLength, h.QueueLength)
		q.DryRun = q.DryRun || h.DryRun
		q.PausedUntil = cmp.Or(q.PausedUntil, h.engine.PausedUntil(h.prefix.Names))
		paths = append(paths, h.engine.Path())
	}
	slices.Sort(paths)
	return q, slices.Compact(paths)
}

// isUsed reports whether a handler has the prefix, or a request is in one of its queues.
func (s *knownPrefix) isUsed() bool {
	return s.Waiting.Load() > 0 || s.Inside.Load() > 0 || len(s.handlers()) > 0
}

// opens is when the queues of the prefix open, or zero, and how many browsers wait for that.
func (s *knownPrefix) opens(now time.Time) (opens time.Time, count int) {
	for _, h := range s.handlers() {
		if h.line.Opens.After(now) {
			opens = h.line.Opens
			count = registered.browsers.Registered(s.Prefix)
		}
	}
	return opens, count
}

// ageOf is which requests an age is of: those of a prefix that are inside, or that wait.
type ageOf struct{ prefix, state string }

// oldest are the ages of the oldest requests of this process.
func oldest(now time.Time) map[ageOf]time.Duration {
	all := make(map[ageOf]time.Duration)
	for _, e := range engines.All() {
		for _, state := range e.Known(func(string) bool { return true }) {
			for _, t := range state.Tickets {
				of := ageOf{prefixOf(t.Requester), t.State}
				all[of] = max(all[of], now.Sub(t.Since))
			}
		}
	}
	return all
}

// prefixOf is the prefix, as configured, of a request or a browser. It is empty for callers of
// other kinds, whose queues have no prefix.
func prefixOf(r serializer.Requester) string {
	if of, ok := r.(interface{ Prefix() string }); ok {
		return of.Prefix()
	}
	return ""
}
