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
type record struct {
	prefix string
	meters *meters
	recent recent

	waiting, inside crowd

	uses  map[recordUse]int        // how many handlers use the prefix so; guarded by recordsMu
	holds map[string]*holdEstimate // by path; guarded by recordsMu
}

// recordUse is how a handler uses a prefix.
type recordUse struct {
	path        string
	limit       int // how many may be inside; 0 is no limit
	queueLength int // how many may wait; 0 is no limit
}

var (
	recordsMu sync.Mutex
	records   = make(map[string]*record) // by prefix
)

// openRecord adds a handler to the record of its prefix, until the function that
// it returns is called.
func openRecord(prefix string, use recordUse, m *meters) (closeRecord func()) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	r := records[prefix]
	if r == nil {
		r = &record{prefix: prefix, meters: m, uses: make(map[recordUse]int), holds: make(map[string]*holdEstimate)}
		records[prefix] = r
	}
	r.uses[use]++
	if r.holds[use.path] == nil {
		r.holds[use.path] = new(holdEstimate)
	}
	m.record, m.holds = r, r.holds[use.path]
	return func() { r.close(use) }
}

// close takes a handler out of a record.
func (r *record) close(use recordUse) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	if r.uses[use]--; r.uses[use] == 0 {
		delete(r.uses, use)
	}
	pruneRecordsLocked()
}

// pruneRecordsLocked forgets the records that no handler uses and that no request
// is in. Those with requests in them are found here later.
func pruneRecordsLocked() {
	maps.DeleteFunc(records, func(_ string, r *record) bool {
		return len(r.uses) == 0 && r.waiting.empty() && r.inside.empty()
	})
}

// allRecords are the records in use, in the order of prefixes.
func allRecords() []*record {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	pruneRecordsLocked()
	return slices.SortedFunc(maps.Values(records), func(a, b *record) int { return strings.Compare(a.prefix, b.prefix) })
}

// directories are the paths that the prefix is used in, in order.
func (r *record) directories() []string {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	var paths []string
	for use := range r.uses {
		paths = append(paths, use.path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// limit is how many may be inside of a queue, and known whether there is a
// handler to say so. Where handlers differ, it is the widest.
func (r *record) limit() (limit int, known bool) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
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
func (r *record) queueLength() (length int) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
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
	v.member.visit = v
	m.record.waiting.join(&v.member, now)
}

// endWait notes that it no longer does.
func (m *meters) endWait(v *visit) {
	m.waiting.Dec()
	m.wait.Observe(v.waited.Seconds())
	m.record.waiting.part(&v.member)
}

// startHold notes that a request has entered.
func (m *meters) startHold(v *visit) {
	m.inside.Inc()
	m.record.recent.entered(v.entered, v.waited)
	m.record.inside.join(&v.member, v.entered)
}

// endHold notes that it has left.
func (m *meters) endHold(v *visit, held time.Duration) {
	m.inside.Dec()
	m.hold.Observe(held.Seconds())
	m.holds.add(held)
	m.record.inside.part(&v.member)
}
