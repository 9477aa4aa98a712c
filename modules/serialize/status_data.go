package serialize

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// collect gathers the data of the page.
func (s *Status) collect(ctx context.Context, now time.Time, filter string) statuspage.Data {
	queues, errs := statusQueues(ctx, now), make([]string, 0)
	for _, q := range queues {
		if q.Error != "" && !slices.Contains(errs, q.Error) {
			s.logger.Error("status page", zap.String("queue", q.Prefix), zap.String("path", q.Path), zap.String("error", q.Error))
			errs = append(errs, q.Error)
		}
	}
	return statuspage.New(now, queues, errs, filter)
}

// statusQueues are the queues of the engines, with the stats of their prefixes, and
// one for each other prefix, such as those with placeholders.
func statusQueues(ctx context.Context, now time.Time) (queues []*statuspage.Queue) {
	listed := make(map[*prefixStats]bool)
	paused := make(map[*prefixStats]*time.Time) // those with placeholders
	all := usedStats()
	for _, state := range allQueues(ctx) {
		if notePause(paused, all, state.QueueState) {
			continue
		}
		prefixes := prefixesOf(all, state.QueueState)
		q := statuspage.NewQueue(state.Queue, now, longestWait(prefixes))
		q.QueueLength = queueLengthOf(state)
		for _, r := range prefixes {
			if !r.many() {
				listed[r] = true
				r.addTo(q, now)
			}
		}
		queues = append(queues, q)
	}
	for _, r := range all {
		if !listed[r] {
			q := r.status(now)
			q.PausedUntil = paused[r]
			queues = append(queues, q)
		}
	}
	for _, q := range queues {
		q.Diagnose()
	}
	return queues
}

// notePause notes which prefixes with placeholders a listed pause of several queues
// applies to. It reports whether it is the pause of one of them, which need not be shown
// as a queue.
func notePause(paused map[*prefixStats]*time.Time, all []*prefixStats, state serializer.QueueState) (own bool) {
	if !strings.HasSuffix(state.Prefix, "*") {
		return false
	}
	for _, r := range all {
		if r.many() && r.isIn(state.Path) && queueapi.Matches(state.Prefix, r.pauseName()) {
			paused[r] = state.PausedUntil
			own = own || state.Prefix == r.pauseName()
		}
	}
	return own
}

// prefixesOf are the prefixes that a queue may be of.
func prefixesOf(all []*prefixStats, state serializer.QueueState) (found []*prefixStats) {
	for _, r := range all {
		if r.isIn(state.Path) && queueapi.Matches(r.pauseName(), state.Prefix) {
			found = append(found, r)
		}
	}
	return found
}

// longestWait is how long a request may wait in a queue of some prefixes. It is 0 if there
// is no limit, or none is known.
func longestWait(prefixes []*prefixStats) (longest time.Duration) {
	for _, r := range prefixes {
		wait := r.usage().timeout
		if wait == 0 {
			return 0
		}
		longest = max(longest, wait)
	}
	return longest
}

// usedStats are the stats of the prefixes in use.
func usedStats() []*prefixStats {
	return slices.DeleteFunc(registered.allStats(), func(s *prefixStats) bool { return !s.isUsed() })
}

// isIn reports whether the prefix is used in a path. The path of an engine without a
// directory is a name of its own, so a single use always matches.
func (s *prefixStats) isIn(path string) bool {
	paths := s.usage().paths
	return len(paths) <= 1 || slices.Contains(paths, path)
}

// status is the sum of a prefix's queues, without asking an engine.
func (s *prefixStats) status(now time.Time) *statuspage.Queue {
	u := s.usage()
	q := &statuspage.Queue{
		Prefix: s.prefix, Paths: u.paths, Many: s.many(), Limit: u.limit, Tickets: make([]serializer.TicketState, 0),
		Inside: int(s.inside.Load()), Waiting: int(s.waiting.Load()),
		OldestInside: s.holdAges.Oldest(now).Seconds(), OldestWaiting: s.waitAges.Oldest(now).Seconds(),
	}
	s.addTo(q, now)
	return q
}

// addTo adds the counts and the recent past of a prefix.
func (s *prefixStats) addTo(q *statuspage.Queue, now time.Time) {
	u := s.usage()
	q.QueueLength, q.DryRun = u.queueLength, u.dryRun
	q.Outcomes = make(map[string]int64)
	for outcome, count := range s.outcomes {
		q.Outcomes[outcome] = count.Load()
	}
	q.WouldEnter, q.WouldWait = q.Outcomes[outcomeWouldEnter], q.Outcomes[outcomeWouldWait]
	q.AddRecent(s.recent.Counts(now))
}

// queueLengthOf is how many may wait in a queue, as far as one of its requests says so.
func queueLengthOf(queue listedQueue) (length int) {
	for _, t := range queue.Tickets {
		if v, ok := t.Requester.(*visit); ok {
			length = v.handler.QueueLength
		}
	}
	return length
}
