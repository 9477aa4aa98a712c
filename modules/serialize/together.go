package serialize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// conflicts are the settings that cannot be combined with others.
var conflicts = map[string][]string{
	// These let requests in without a slot, or another number of them.
	"slots": {"concurrency", "shared_methods", "skip_methods", "dry_run", "visit"},
	// A writer would have to wait for the last of the readers whose turns are held. That says
	// nothing about how many enter in a time.
	"hold_at_least": {"shared_methods"},
	// These say how long a request is inside, or with whom, and a visit is not a request.
	"visit": {"hold_at_least", "hold_timeout", "shared_methods"},
}

// checkTogether refuses settings that do not go together. It comes before the defaults.
func (s *Handler) checkTogether() error {
	set := map[string]bool{
		"concurrency": s.Concurrency != 0, "dry_run": s.DryRun, "hold_at_least": s.HoldAtLeast != nil,
		"hold_timeout": s.HoldTimeout != nil && *s.HoldTimeout > 0, "shared_methods": len(s.SharedMethods) > 0,
		"skip_methods": len(s.SkipMethods) > 0, "slots": s.Slots != nil, "visit": s.Visit != nil,
	}
	for name, others := range conflicts {
		for _, other := range others {
			if set[name] && set[other] {
				return fmt.Errorf("%s: it cannot be combined with %s; expected one of the two", name, other)
			}
		}
	}
	switch {
	case s.Visit != nil && s.WaitingPage == nil:
		return errors.New("visit: browsers need the page while they wait; expected waiting_page, too")
	case s.KeepAlive != nil && s.Buffer != nil && *s.Buffer == directive.Off:
		return errors.New("keepalive: a client that still sends its body gets no event stream; expected a buffer with a size, not `buffer off`")
	case s.WhenFull == dropOldest && s.QueueLength < 1:
		return errors.New("when_full drop_oldest: it needs a queue_length of 1 or more; with 1, the latest request wins")
	}
	return nil
}

// checkOtherLines refuses lines of one queue that differ in what each ticket has of it: a request
// of a visit would wait for its own turn at a line without, one without a slot would have none, and
// one line would be open before the other. It warns of lines that differ in who may be inside together.
func (s *Handler) checkOtherLines() error {
	warned := false
	for _, other := range registered.handlersWhere(s.sharesQueue) {
		if other.ctx.Done() != s.ctx.Done() { // of another configuration
			continue
		}
		dry := s.DryRun || other.DryRun // a dry run has no visits, and is open
		for _, texts := range [][3]string{
			{"slots", s.slotsText(), other.slotsText()}, {"visit", s.Visit.text(), other.Visit.text()},
			{"opens", s.opensText(), other.opensText()},
		} {
			name, mine, theirs := texts[0], texts[1], texts[2]
			if mine != theirs && (name == "slots" || !dry) {
				return fmt.Errorf("%s: two lines of queue %q differ: %s has %s, and %s has %s; give both the same, or one of them another prefix",
					name, s.Prefix, s.site, mine, other.site, theirs)
			}
		}
		if !dry && !warned && other.ruleText != s.ruleText {
			warned = true // one such line says enough
			s.report.Logger.Warn("two lines of one queue differ in concurrency, hold_at_least or shared_methods; give both the same settings, or one of them another prefix",
				zap.String("path", s.Path), zap.String("prefix", s.Prefix), zap.String("site", s.site), zap.String("settings", s.ruleText),
				zap.String("other_site", other.site), zap.String("other_settings", other.ruleText))
		}
	}
	return nil
}

// sharesQueue reports whether another line, perhaps of another configuration, has the queue.
func (s *Handler) sharesQueue(other *Handler) bool {
	return other.engine.Space == s.engine.Space && other.Prefix == s.Prefix
}

// followers are the lines of other configurations that have the queue of one that ends.
func (s *Handler) followers() []*Handler {
	return registered.handlersWhere(func(other *Handler) bool {
		return other.ctx.Done() != s.ctx.Done() && s.sharesQueue(other) && !other.DryRun
	})
}

// successor is the line that says who may be inside now: this one, or once a reload has ended it without
// one of the same rule, the strictest of those that have followed.
func (s *Handler) successor() *Handler {
	if _, active := registered.handlers.Load(s); active || s.DryRun {
		return s
	}
	followers := s.followers()
	if len(followers) == 0 || slices.ContainsFunc(followers, func(f *Handler) bool { return f.ruleText == s.ruleText }) {
		return s
	}
	return slices.MinFunc(followers, func(a, b *Handler) int {
		return cmp.Or(cmp.Compare(a.Concurrency, b.Concurrency), cmp.Compare(b.least(), a.least()))
	})
}
