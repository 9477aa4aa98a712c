package serialize

import (
	"slices"
	"strings"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// prefixStats is what the metrics and the status page know of one configured prefix. There
// is one for each prefix as configured, so their number does not grow with traffic.
type prefixStats struct {
	*telemetry.Stats
	prefix string
}

// members are the handlers that have the prefix.
func (s *prefixStats) members() []member {
	return registered.membersWhere(func(m *member) bool { return m.prefix == s.prefix })
}

// usage is how the handlers of a prefix use it.
type usage struct {
	member
	paths []string // in order; none without a handler
}

func (s *prefixStats) usage() (u usage) {
	members := s.members()
	for _, m := range members {
		u.paths = append(u.paths, m.path)
	}
	slices.Sort(u.paths)
	u.member, u.paths = widest(members), slices.Compact(u.paths)
	return u
}

// widest is what several handlers of a queue say of it together. If they differ, each limit
// is the widest.
func widest(members []member) (all member) {
	for i, m := range members {
		if i == 0 {
			all = m
		}
		all.limit = serializer.Wider(all.limit, m.limit)
		all.queueLength = serializer.Wider(all.queueLength, m.queueLength)
		all.dryRun = all.dryRun || m.dryRun
	}
	return all
}

// isUsed reports whether a handler has the prefix, or a request is in one of its queues.
func (s *prefixStats) isUsed() bool {
	return s.Waiting.Load() > 0 || s.Inside.Load() > 0 || len(s.members()) > 0
}

// many reports whether the prefix names more than one queue.
func (s *prefixStats) many() bool { return strings.Contains(s.prefix, "{") }

// paused is 1 if the queue of the prefix is paused, or all its queues, otherwise 0.
func (s *prefixStats) paused() float64 {
	for _, m := range s.members() {
		if m.engine.PausedUntil(s.pauseName()) != nil {
			return 1
		}
	}
	return 0
}

// pauseName is the name by which the queue of the prefix is paused, or all its queues.
func (s *prefixStats) pauseName() string { return namesWith(s.prefix) }

// namesWith is the name of a prefix's queue, or with placeholders, that of all its queues.
func namesWith(prefix string) string {
	if start, _, many := strings.Cut(prefix, "{"); many {
		return serializer.QueueNames(start)
	}
	return serializer.QueueName(prefix)
}
