package serialize

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const (
	maxSlots  = 64
	wantSlots = "1 to 64 distinct names, such as addresses of servers"
)

func (s *Handler) checkSlots() error {
	names := s.Slots
	if names != nil && (len(names) == 0 || len(names) > maxSlots) {
		return fmt.Errorf("slots: found %d names; expected %s", len(names), wantSlots)
	}
	for i, name := range names {
		if strings.TrimSpace(name) == "" {
			return fmt.Errorf("slots: name %d is empty; expected %s", i+1, wantSlots)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("slots: %q is there twice; expected %s", name, wantSlots)
		}
	}
	return nil
}

// fillInSlots fills in the placeholders of the slots, and lets in as many requests.
func (s *Handler) fillInSlots() error {
	for i, name := range s.Slots {
		expanded, err := caddy.NewReplacer().ReplaceOrErr(name, true, true)
		if err != nil {
			return fmt.Errorf("slots %q: %w; expected placeholders that have a value when the configuration is loaded", name, err)
		}
		s.Slots[i] = expanded
	}
	s.Concurrency = cmp.Or(len(s.Slots), s.Concurrency)
	s.failures = &slotFailures{given: make(map[string]int), failed: make(map[string]time.Time)}
	return nil
}

// slotsNow are the slots that a request may get whose turn has come. It may have waited since
// before a reload: then those of the new configuration count.
func (s *Handler) slotsNow() []string {
	now := s.Slots
	if next := s.successor().Slots; next != nil {
		now = next
	}
	return s.failures.without(now)
}

// slotFailures are those of a line that has slots, or nil. The slot of a server that fails at once would be
// the only free one, again and again, for all who wait while the other servers work. So a slot whose request
// has failed rests until each other one was given later than it, by this line. So never all of them rest.
type slotFailures struct {
	mu     sync.Mutex
	count  int                  // of the slots that were given
	given  map[string]int       // to each slot, the count when it was given last
	failed map[string]time.Time // when the request that had it last failed
}

// longestRest bounds a rest: another slot's request may never end.
const longestRest = time.Minute

func (f *slotFailures) give(slot string) {
	if f == nil || slot == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	f.given[slot] = f.count
	delete(f.failed, slot)
}

// note notes the end of a request by its error or else by its status. One that was cut off may be the client's doing.
func (f *slotFailures) note(slot string, status int, err error) {
	if err != nil && err != http.ErrAbortHandler {
		failure, _ := errors.AsType[caddyhttp.HandlerError](err)
		status = cmp.Or(failure.StatusCode, http.StatusInternalServerError)
	}
	if f == nil || slot == "" || status < http.StatusInternalServerError {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed[slot] = time.Now()
}

// without returns slots but for those that rest.
func (f *slotFailures) without(slots []string) []string {
	if f == nil {
		return slots
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(slots), func(slot string) bool {
		return time.Since(f.failed[slot]) < longestRest &&
			slices.ContainsFunc(slots, func(other string) bool { return f.given[other] < f.given[slot] })
	})
}

// slotsText are the slots, whatever their order.
func (s *Handler) slotsText() string {
	if s.Slots == nil {
		return "no slots"
	}
	return "slots " + strings.Join(slices.Sorted(slices.Values(s.Slots)), " ")
}
