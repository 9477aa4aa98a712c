// Package statuspage is the page that shows the queues of a process: its data, what it
// says is wrong, and its presentation.
package statuspage

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Data is what the status page shows.
type Data struct {
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
	Queues []*Queue `json:"queues"`

	// What could not be read.
	Errors []string `json:"errors"`
}

// Queue is a queue. For a prefix with placeholders, it is the sum of all its
// queues, as far as this process has requests in them.
type Queue struct {
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
	Recent        *Counts                  `json:"recent,omitempty"`   // if anything happened in the last ten minutes
	Trouble       []string                 `json:"trouble"`            // the worst first
	Tickets       []serializer.TicketState `json:"tickets"`            // the first of them
	Error         string                   `json:"error,omitempty"`    // why it cannot be read

	WouldEnter, WouldWait int64 `json:"-"` // requests of a dry run, since the process began

	PauseName string `json:"-"` // by which it is paused; ends in * for a prefix with placeholders

	badge      string // the worst trouble in a word
	level      troubleLevel
	refusedNow int64         // in the last minute
	held       time.Duration // the least time that a request has been inside
}

// The most that the page shows.
const (
	maxQueues  = 200
	maxTickets = 25
)

// New is the data of the page for some queues. errs is what could not be read.
func New(now time.Time, queues []*Queue, errs []string, filter string) Data {
	host, _ := os.Hostname()
	data := Data{
		Time: now.UTC(), Host: host, PID: os.Getpid(), Interval: int(recentSpan / time.Second), Filter: filter,
		Total: len(queues), Queues: make([]*Queue, 0), Errors: errs,
	}
	queues = slices.DeleteFunc(queues, func(q *Queue) bool { return !q.matches(filter) })
	slices.SortStableFunc(queues, byTrouble)
	data.Found = len(queues)
	for _, q := range queues {
		if q.level >= someTrouble {
			data.Troubled++
		}
	}
	data.Queues = append(data.Queues, queues[:min(len(queues), maxQueues)]...)
	data.Omitted = data.Found - len(data.Queues)
	return data
}

// byTrouble puts the queues that need attention first.
func byTrouble(a, b *Queue) int {
	return cmp.Or(
		cmp.Compare(b.level, a.level),
		cmp.Compare(b.OldestWaiting, a.OldestWaiting),
		cmp.Compare(b.Waiting, a.Waiting),
		cmp.Compare(b.Inside, a.Inside),
		cmp.Compare(a.Prefix, b.Prefix),
		cmp.Compare(a.Path, b.Path),
	)
}

func (q *Queue) matches(filter string) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(filter)) }
	return has(q.Prefix) || slices.ContainsFunc(q.Paths, has)
}

// NewQueue is a queue as its engine lists it. longestWait is how long a request may
// wait in it; 0 if there is no limit, or none is known.
func NewQueue(state queueapi.Queue, now time.Time, longestWait time.Duration) *Queue {
	q := &Queue{
		PausedUntil: state.PausedUntil, Path: state.Path, Prefix: state.Prefix, PauseName: state.Prefix, Paths: []string{state.Path}, Limit: state.Limit, Error: state.Error,
		Inside: state.Inside, Waiting: state.Waiting, Tickets: state.Tickets[:min(len(state.Tickets), maxTickets)],
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
	}
	return q
}

// AddRecent adds what happened lately.
func (q *Queue) AddRecent(recent Counts) {
	q.Refused, q.Failed = sum(recent.Refused), sum(recent.Failed)
	q.refusedNow = sum(recent.Refused[recentSpans-lastMinute:])
	if q.Refused > 0 || recent.AllEntered() > 0 {
		q.Recent = &recent
	}
}
