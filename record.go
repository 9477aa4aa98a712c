package orderly

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// record is what the status page knows of one configured prefix. Like the
// metrics, it goes by the prefix as it is configured, so there are no more of
// them than there are lines in configurations. It survives reloads, and goes
// with the last configuration that has the prefix.
type record struct {
	prefix string
	meters *meters
	recent recent

	paths map[string]int // how many handlers use the prefix in a directory; guarded by recordsMu
}

var (
	recordsMu sync.Mutex
	records   = make(map[string]*record) // by prefix
)

// openRecord adds a handler to the record of its prefix, until the function that
// it returns is called.
func openRecord(prefix, path string, m *meters) (closeRecord func()) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	r := records[prefix]
	if r == nil {
		r = &record{prefix: prefix, meters: m, paths: make(map[string]int)}
		records[prefix] = r
	}
	r.paths[path]++
	m.recent = &r.recent
	return func() { r.close(path) }
}

// close takes a handler out of a record.
func (r *record) close(path string) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	if r.paths[path]--; r.paths[path] > 0 {
		return
	}
	delete(r.paths, path)
	if len(r.paths) == 0 {
		delete(records, r.prefix)
	}
}

// allRecords are the records of all configurations in use, in the order of
// prefixes.
func allRecords() []*record {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	return slices.SortedFunc(maps.Values(records), func(a, b *record) int { return strings.Compare(a.prefix, b.prefix) })
}

// directories are the paths that the prefix is used in, in order.
func (r *record) directories() []string {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	return slices.Sorted(maps.Keys(r.paths))
}
