package serialize

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const maxSlots, wantSlots = 64, "1 to 64 distinct names, such as addresses of servers"

func (s *Handler) checkSlots() error {
	distinct := slices.Compact(slices.Sorted(slices.Values(s.Slots)))
	isEmpty := func(name string) bool { return strings.TrimSpace(name) == "" }
	n := len(s.Slots)
	if s.Slots != nil && (n == 0 || n > maxSlots || n > len(distinct) || slices.ContainsFunc(distinct, isEmpty)) {
		return fmt.Errorf("slots: found %q; expected %s", s.Slots, wantSlots)
	}
	return nil
}

// fillInSlots fills in the placeholders of the slots, and lets in as many requests.
func (s *Handler) fillInSlots() (err error) {
	for i, name := range s.Slots {
		if s.Slots[i], err = caddy.NewReplacer().ReplaceOrErr(name, true, true); err != nil {
			return fmt.Errorf("slots %q: %w; expected placeholders that have a value when the configuration is loaded", name, err)
		}
	}
	s.Concurrency = cmp.Or(len(s.Slots), s.Concurrency)
	return nil
}

// slotsNow are the slots that a request may get whose turn has come. It may have waited since
// before a reload: then those of the new configuration count.
func (s *Handler) slotsNow() []string {
	if now := s.successor().Slots; now != nil {
		return now
	}
	return s.Slots
}

// hasFailed reports whether a request has failed, by its error or else by its status. One that was cut off
// may be its client's doing.
func hasFailed(status int, err error) bool {
	if err != nil && err != http.ErrAbortHandler {
		status = caddyhttp.Error(http.StatusInternalServerError, err).StatusCode // or the one that it has
	}
	return status >= http.StatusInternalServerError
}

// slotsText are the slots, whatever their order.
func (s *Handler) slotsText() string {
	if s.Slots == nil {
		return "no slots"
	}
	return fmt.Sprintf("slots %q", slices.Sorted(slices.Values(s.Slots)))
}
