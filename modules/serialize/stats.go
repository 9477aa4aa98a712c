package serialize

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// record is what the status page and the metrics know of one configured prefix.
// Like the metrics, it goes by the prefix as it is configured, so there are no
// more of them than there are lines in configurations. It survives reloads, and
// goes with the last configuration that has the prefix and the last request in
// it.
type prefixStats struct {
	prefix string
	meters *meters
	recent recent

	waiting, inside ageList

	uses  map[prefixUse]int        // how many handlers use the prefix so; guarded by statsMu
	holds map[string]*holdEstimate // by path; guarded by statsMu
}

// prefixUse is how a handler uses a prefix.
type prefixUse struct {
	path        string
	limit       int // how many may be inside; 0 is no limit
	queueLength int // how many may wait; 0 is no limit
}

var (
	statsMu       sync.Mutex
	statsByPrefix = make(map[string]*prefixStats) // by prefix
)

// openStats adds a handler to the record of its prefix, until the function that
// it returns is called.
func openStats(prefix string, use prefixUse, m *meters) (closeStats func()) {
	statsMu.Lock()
	defer statsMu.Unlock()
	r := statsByPrefix[prefix]
	if r == nil {
		r = &prefixStats{prefix: prefix, meters: m, uses: make(map[prefixUse]int), holds: make(map[string]*holdEstimate)}
		statsByPrefix[prefix] = r
	}
	r.uses[use]++
	if r.holds[use.path] == nil {
		r.holds[use.path] = new(holdEstimate)
	}
	m.stats, m.holds = r, r.holds[use.path]
	return func() { r.close(use) }
}

// close takes a handler out of a record.
func (r *prefixStats) close(use prefixUse) {
	statsMu.Lock()
	defer statsMu.Unlock()
	if r.uses[use]--; r.uses[use] == 0 {
		delete(r.uses, use)
	}
	pruneStatsLocked()
}

// pruneStatsLocked forgets the records that no handler uses and that no request
// is in. Those with requests in them are found here later.
func pruneStatsLocked() {
	maps.DeleteFunc(statsByPrefix, func(_ string, r *prefixStats) bool {
		return len(r.uses) == 0 && r.waiting.empty() && r.inside.empty()
	})
}

// allStats are the records in use, in the order of prefixes.
func allStats() []*prefixStats {
	statsMu.Lock()
	defer statsMu.Unlock()
	pruneStatsLocked()
	return slices.SortedFunc(maps.Values(statsByPrefix), func(a, b *prefixStats) int { return strings.Compare(a.prefix, b.prefix) })
}

// directories are the paths that the prefix is used in, in order.
func (r *prefixStats) directories() []string {
	statsMu.Lock()
	defer statsMu.Unlock()
	var paths []string
	for use := range r.uses {
		paths = append(paths, use.path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// limit is how many may be inside of a queue, and known whether there is a
// handler to say so. Where handlers differ, it is the widest.
func (r *prefixStats) limit() (limit int, known bool) {
	statsMu.Lock()
	defer statsMu.Unlock()
	for use := range r.uses {
		if !known {
			limit, known = use.limit, true
		}
		limit = serializer.Wider(limit, use.limit)
	}
	return limit, known
}

// queueLength is how many may wait in a queue; 0 is no limit. Where handlers
// differ, it is the widest.
func (r *prefixStats) queueLength() (length int) {
	statsMu.Lock()
	defer statsMu.Unlock()
	known := false
	for use := range r.uses {
		if !known {
			length, known = use.queueLength, true
		}
		length = serializer.Wider(length, use.queueLength)
	}
	return length
}

// startWait notes that a request waits from now on.
func (m *meters) startWait(v *visit, now time.Time) {
	m.waiting.Inc()
	v.age.visit = v
	m.stats.waiting.insert(&v.age, now)
}

// endWait notes that it no longer does.
func (m *meters) endWait(v *visit) {
	m.waiting.Dec()
	m.wait.Observe(v.waited.Seconds())
	m.stats.waiting.remove(&v.age)
}

// startHold notes that a request has entered.
func (m *meters) startHold(v *visit) {
	m.inside.Inc()
	m.stats.recent.entered(v.entered, v.waited)
	m.stats.inside.insert(&v.age, v.entered)
}

// endHold notes that it has left.
func (m *meters) endHold(v *visit, held time.Duration) {
	m.inside.Dec()
	m.hold.Observe(held.Seconds())
	m.holds.add(held)
	m.stats.inside.remove(&v.age)
}
