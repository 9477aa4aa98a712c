package serialize

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// statusData is what the status page shows.
type statusData struct {
	Time     time.Time `json:"time"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Interval int       `json:"interval_seconds"` // of each number in recent
	Filter   string    `json:"filter"`
	Total    int       `json:"total"`    // queues there are
	Found    int       `json:"found"`    // queues that the filter finds
	Troubled int       `json:"troubled"` // queues found that are in trouble
	Omitted  int       `json:"omitted"`  // queues found that are not in the list

	// The queues of the configuration and those with tickets, the worst first.
	// There may be one for each user, so the lists of queues and of their tickets
	// are truncated.
	Queues []*statusQueue `json:"queues"`

	// What could not be read.
	Errors []string `json:"errors"`
}

// statusQueue is a queue. For a prefix with placeholders, it is the sum of all its
// queues, as far as this process has requests in them.
type statusQueue struct {
	Path          string                   `json:"path"`
	Prefix        string                   `json:"prefix"`
	Paths         []string                 `json:"paths"`
	Many          bool                     `json:"many"`         // a prefix with placeholders
	Limit         int                      `json:"limit"`        // how many may be inside; 0 is no limit
	QueueLength   int                      `json:"queue_length"` // how many may wait; 0 is no limit
	DryRun        bool                     `json:"dry_run"`      // nobody waits
	PausedUntil   *time.Time               `json:"paused_until,omitempty"`
	Inside        int                      `json:"inside"`
	Waiting       int                      `json:"waiting"`
	Kept          int                      `json:"kept,omitempty"` // places of this process whose browsers have the waiting page
	OldestInside  float64                  `json:"oldest_inside_seconds"`
	OldestWaiting float64                  `json:"oldest_waiting_seconds"`
	Refused       int64                    `json:"refused"`            // in the last ten minutes
	Failed        int64                    `json:"failed"`             // of these: because the storage failed
	Outcomes      map[string]int64         `json:"outcomes,omitempty"` // requests since the process began
	Recent        *recentCounts            `json:"recent,omitempty"`   // if anything happened in the last ten minutes
	Trouble       []string                 `json:"trouble"`            // the worst first
	Tickets       []serializer.TicketState `json:"tickets"`            // the first of them
	Error         string                   `json:"error,omitempty"`    // why it cannot be read

	badge      string // the worst trouble in a word
	level      troubleLevel
	refusedNow int64         // in the last minute
	held       time.Duration // the least time that a request has been inside
}

// The most that the page shows.
const (
	maxStatusQueues  = 200
	maxStatusTickets = 25
)

// collect gathers the data of the page.
func (s *Status) collect(ctx context.Context, now time.Time, filter string) statusData {
	host, _ := os.Hostname()
	data := statusData{
		Time: now.UTC(), Host: host, PID: os.Getpid(), Interval: int(recentSpan / time.Second), Filter: filter,
		Queues: make([]*statusQueue, 0), Errors: make([]string, 0),
	}
	queues := statusQueues(ctx, now)
	for _, q := range queues {
		if q.Error != "" && !slices.Contains(data.Errors, q.Error) {
			s.logger.Error("status page", zap.String("queue", q.Prefix), zap.String("path", q.Path), zap.String("error", q.Error))
			data.Errors = append(data.Errors, q.Error)
		}
	}
	data.Total = len(queues)
	queues = slices.DeleteFunc(queues, func(q *statusQueue) bool { return !q.matches(filter) })
	slices.SortStableFunc(queues, byTrouble)
	data.Found = len(queues)
	for _, q := range queues {
		if q.level >= someTrouble {
			data.Troubled++
		}
	}
	data.Queues = append(data.Queues, queues[:min(len(queues), maxStatusQueues)]...)
	data.Omitted = data.Found - len(data.Queues)
	return data
}

// byTrouble puts the queues that need attention first.
func byTrouble(a, b *statusQueue) int {
	return cmp.Or(
		cmp.Compare(b.level, a.level),
		cmp.Compare(b.OldestWaiting, a.OldestWaiting),
		cmp.Compare(b.Waiting, a.Waiting),
		cmp.Compare(b.Inside, a.Inside),
		cmp.Compare(a.Prefix, b.Prefix),
		cmp.Compare(a.Path, b.Path),
	)
}

func (q *statusQueue) matches(filter string) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(filter)) }
	return has(q.Prefix) || slices.ContainsFunc(q.Paths, has)
}

// statusQueues are the queues of the engines, with the stats of their prefixes, and
// one for each other prefix, such as those with placeholders.
func statusQueues(ctx context.Context, now time.Time) (queues []*statusQueue) {
	byName, byGroup := make(map[string]*prefixStats), make(map[string]*prefixStats)
	listed := make(map[*prefixStats]bool)
	all := allStats()
	for _, r := range all {
		if r.many() {
			byGroup[r.prefix] = r
		} else {
			byName[serializer.QueueName(r.prefix)] = r
		}
	}
	groups := make(map[*prefixStats]*time.Time) // those that are paused
	for _, state := range allQueues(ctx) {
		if r := groupOf(all, state.QueueState); r != nil {
			groups[r] = state.PausedUntil
			continue
		}
		prefixes := []*prefixStats{byName[state.Prefix].in(state.Path)}
		for _, group := range state.Groups {
			prefixes = append(prefixes, byGroup[group].in(state.Path))
		}
		q := newStatusQueue(state, now, longestWait(prefixes))
		if r := prefixes[0]; r != nil {
			listed[r] = true
			q.addStats(r, now)
		}
		queues = append(queues, q)
	}
	for _, r := range all {
		if !listed[r] {
			q := r.status(now)
			q.PausedUntil = groups[r]
			queues = append(queues, q)
		}
	}
	for _, q := range queues {
		q.diagnose()
	}
	return queues
}

// groupOf finds the prefix with placeholders that a paused group goes by, or nil.
func groupOf(all []*prefixStats, state serializer.QueueState) *prefixStats {
	i := slices.IndexFunc(all, func(r *prefixStats) bool {
		return r.many() && r.prefix == state.Prefix && len(state.Tickets) == 0 && r.isIn(state.Path)
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// longestWait is how long a request may wait in a queue of some prefixes, of which some
// are not known (nil); 0 if there is no limit, or none is known.
func longestWait(prefixes []*prefixStats) (longest time.Duration) {
	for _, r := range prefixes {
		if r == nil {
			continue
		}
		wait, limited := r.longestWait()
		if !limited {
			return 0
		}
		longest = max(longest, wait)
	}
	return longest
}

// newStatusQueue is a queue as its engine lists it. longestWait is how long a request may
// wait in it; 0 if there is no limit, or none is known.
func newStatusQueue(state listedQueue, now time.Time, longestWait time.Duration) *statusQueue {
	q := &statusQueue{
		PausedUntil: state.PausedUntil, Path: state.Path, Prefix: state.Prefix, Paths: []string{state.Path}, Limit: state.Limit, Error: state.Error,
		Inside: state.Inside, Waiting: state.Waiting, Tickets: state.Tickets[:min(len(state.Tickets), maxStatusTickets)],
	}
	for _, t := range state.Tickets {
		age := max(now.Sub(t.Since), 0)
		switch {
		case t.State == serializer.StateWaiting:
			q.OldestWaiting = max(q.OldestWaiting, age.Seconds())
		case t.Entered.IsZero(): // in another process: its age includes its wait
			q.OldestInside = max(q.OldestInside, age.Seconds())
			if longestWait > 0 {
				q.held = max(q.held, age-longestWait)
			}
		default:
			q.OldestInside, q.held = max(q.OldestInside, age.Seconds()), max(q.held, age)
		}
		if v, ok := t.Requester.(*visit); ok {
			q.QueueLength = v.handler.QueueLength
		}
	}
	return q
}

// many reports whether the prefix names more than one queue.
func (s *prefixStats) many() bool { return strings.Contains(s.prefix, "{") }

// in returns the prefix if it is used in a path, otherwise nil.
func (s *prefixStats) in(path string) *prefixStats {
	if s == nil || !s.isIn(path) {
		return nil
	}
	return s
}

// isIn reports whether the prefix is used in a path. The path of an engine without a
// directory is a name of its own, so a single use always matches.
func (s *prefixStats) isIn(path string) bool {
	paths := s.directories()
	return len(paths) <= 1 || slices.Contains(paths, path)
}

// status is the sum of a prefix's queues, without asking an engine.
func (s *prefixStats) status(now time.Time) *statusQueue {
	limit, _ := s.limit()
	q := &statusQueue{
		Prefix: s.prefix, Paths: s.directories(), Many: s.many(), Limit: limit, Tickets: make([]serializer.TicketState, 0),
		Inside: int(s.counts.inside.Load()), Waiting: int(s.counts.waiting.Load()),
		OldestInside: s.inside.oldest(now).Seconds(), OldestWaiting: s.waiting.oldest(now).Seconds(),
	}
	q.addStats(s, now)
	return q
}

// addStats adds the counts and the recent past of a prefix.
func (q *statusQueue) addStats(r *prefixStats, now time.Time) {
	q.QueueLength, q.DryRun = r.queueLength(), r.isDry()
	q.Outcomes = make(map[string]int64)
	for outcome, count := range r.counts.outcomes {
		q.Outcomes[outcome] = count.Load()
	}
	q.Kept = int(r.counts.kept.Load())
	recent := r.recent.counts(now)
	q.Refused, q.Failed = sum(recent.Refused), sum(recent.Failed)
	q.refusedNow = sum(recent.Refused[recentSpans-lastMinute:])
	if q.Refused > 0 || recent.AllEntered() > 0 {
		q.Recent = &recent
	}
}
