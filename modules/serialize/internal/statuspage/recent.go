package statuspage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
)

// Recent knows when requests were last refused, and why.
type Recent struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Refused notes that a request was refused for a reason.
func (r *Recent) Refused(now time.Time, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[string]time.Time)
	}
	r.last[reason] = now
}

// Last are the last times, by reason.
func (r *Recent) Last() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.last)
}

// refusalText says which requests were refused lately, and when the last one was.
func (q *Queue) refusalText() (text string, last time.Duration) {
	last = recent
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(q.LastRefused)) {
		ago := max(q.now.Sub(q.LastRefused[reason]), 0)
		if ago < recent {
			last = min(last, ago)
			texts = append(texts, fmt.Sprintf("%s %s ago (%d since the start)", reason, queueapi.Age(ago), q.Outcomes[reason]))
		}
	}
	return strings.Join(texts, ", "), last
}
