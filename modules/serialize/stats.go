package serialize

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// prefixStats is what the status page and the metrics know of one configured
// prefix. There is one for each prefix as configured, so their number does not grow
// with traffic. It survives reloads. It ends when no configuration has the prefix
// and no request is in its queues any more.
type prefixStats struct {
	prefix string
	counts *counts
	recent statuspage.Recent

	waiting, inside agelist.List

	uses  map[prefixUse]int        // how many handlers use the prefix this way; guarded by statsMu
	holds map[string]*holdEstimate // by path; guarded by statsMu
}

// prefixUse is how a handler uses a prefix.
type prefixUse struct {
	path        string
	limit       int // how many may be inside; 0 is no limit
	queueLength int // how many may wait; 0 is no limit
	dryRun      bool
	timeout     time.Duration // the longest wait; 0 is no limit
}

var (
	statsMu       sync.Mutex
	statsByPrefix = make(map[string]*prefixStats)
)

// openStats adds a handler to the stats of its prefix, until closeStats is called.
func openStats(prefix string, use prefixUse, m *meters) (closeStats func()) {
	statsMu.Lock()
	defer statsMu.Unlock()
	s := statsByPrefix[prefix]
	if s == nil {
		s = &prefixStats{prefix: prefix, counts: m.counts, uses: make(map[prefixUse]int), holds: make(map[string]*holdEstimate)}
		statsByPrefix[prefix] = s
	}
	s.uses[use]++
	if s.holds[use.path] == nil {
		s.holds[use.path] = new(holdEstimate)
	}
	m.stats, m.holds = s, s.holds[use.path]
	return func() { s.close(use) }
}

// close removes a handler.
func (s *prefixStats) close(use prefixUse) {
	statsMu.Lock()
	defer statsMu.Unlock()
	if s.uses[use]--; s.uses[use] == 0 {
		delete(s.uses, use)
	}
	pruneStatsLocked()
}

// pruneStatsLocked removes the stats without handlers and requests. Stats whose last
// request leaves later are removed at the next call.
func pruneStatsLocked() {
	maps.DeleteFunc(statsByPrefix, func(_ string, s *prefixStats) bool {
		return len(s.uses) == 0 && s.waiting.Empty() && s.inside.Empty()
	})
}

// allStats are the stats in use, in order of prefix.
func allStats() []*prefixStats {
	statsMu.Lock()
	defer statsMu.Unlock()
	pruneStatsLocked()
	return slices.SortedFunc(maps.Values(statsByPrefix), func(a, b *prefixStats) int { return strings.Compare(a.prefix, b.prefix) })
}

// prefixUsage is how all handlers use a prefix. If they differ, each limit is the widest.
type prefixUsage struct {
	prefixUse
	paths []string // in order; none without a handler
}

func (s *prefixStats) usage() (u prefixUsage) {
	statsMu.Lock()
	defer statsMu.Unlock()
	for use := range s.uses {
		if len(u.paths) == 0 {
			u.prefixUse = use
		}
		u.paths = append(u.paths, use.path)
		u.limit = serializer.Wider(u.limit, use.limit)
		u.queueLength = serializer.Wider(u.queueLength, use.queueLength)
		u.dryRun = u.dryRun || use.dryRun
		switch {
		case use.timeout == 0:
			u.timeout = 0
		case u.timeout > 0:
			u.timeout = max(u.timeout, use.timeout)
		}
	}
	slices.Sort(u.paths)
	u.paths = slices.Compact(u.paths)
	return u
}

// paused is 1 if the queue of the prefix is paused, or all its queues, otherwise
// 0.
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
