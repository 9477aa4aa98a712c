package serialize

import (
	"slices"
	"strings"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// prefixStats is what the metrics and the status page know of one configured prefix. There
// is one for each prefix as configured, so their number does not grow with traffic.
type prefixStats struct {
	*telemetry.Stats
	prefix string
}

// usage is how the handlers of a prefix use it. If they differ, each limit is the widest.
type usage struct {
	member
	paths []string // in order; none without a handler
}

func (s *prefixStats) usage() (u usage) {
	for i, m := range registered.membersWhere(func(m *member) bool { return m.prefix == s.prefix }) {
		if i == 0 {
			u.member = m
		}
		u.paths = append(u.paths, m.path)
		u.limit = serializer.Wider(u.limit, m.limit)
		u.queueLength = serializer.Wider(u.queueLength, m.queueLength)
		u.dryRun = u.dryRun || m.dryRun
	}
	slices.Sort(u.paths)
	u.paths = slices.Compact(u.paths)
	return u
}

// isUsed reports whether a handler has the prefix, or a request is in one of its queues.
func (s *prefixStats) isUsed() bool {
	return s.Waiting.Load() > 0 || s.Inside.Load() > 0 ||
		len(registered.membersWhere(func(m *member) bool { return m.prefix == s.prefix })) > 0
}

// many reports whether the prefix names more than one queue.
func (s *prefixStats) many() bool { return strings.Contains(s.prefix, "{") }

// paused is 1 if the queue of the prefix is paused, or all its queues, otherwise 0.
func (s *prefixStats) paused(all []paused) float64 {
	name := s.pauseName()
	for _, path := range s.usage().paths {
		if slices.ContainsFunc(all, func(p paused) bool { return queueapi.Matches(p.name, name) && p.engine.isAt(path) }) {
			return 1
		}
	}
	return 0
}

// pauseName is the name by which the queue of the prefix is paused, or all its queues.
func (s *prefixStats) pauseName() string {
	if s.many() {
		return queueStart(s.prefix) + "*"
	}
	return serializer.QueueName(s.prefix)
}

// queueStart is what the names of all queues of a prefix with placeholders begin with.
func queueStart(prefix string) string {
	start, _, _ := strings.Cut(prefix, "{")
	return serializer.QueueName(start)
}
