package statuspage

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Queue is a row of the page: a queue, or the sum of all that share a prefix, as far as this
// process has requests in them.
type Queue struct {
	queueview.Queue
	Sum           bool
	OldestWaiting time.Duration
	Outcomes      map[string]*telemetry.Outcome // of the requests since the process began
	History       []telemetry.Sample            // of the last ten minutes
	Control       string                        // its name for pauses; "" if it cannot be paused
	Opens         time.Time                     // zero if it is open
	Registered    int                           // how many browsers wait for that

	Picture *Picture        // of the history; nil without one
	Rows    []queueview.Row // of the first tickets
	More    int             // how many tickets are not among them
	Trouble []string
	Badge   string // the worst trouble in a word
	level   troubleLevel
}

// troubleLevel is how bad it is.
type troubleLevel int

const (
	pausedQueue troubleLevel = iota + 1 // somebody wants it so
	someTrouble                         // requests are refused, or no more may wait
	badTrouble                          // the queue is stuck, cannot be read, or its storage fails
)

const (
	stuckAfter = time.Minute     // a hold, while others wait for it
	recent     = 5 * time.Minute // for refusals
)

// diagnose finds the queue's trouble.
func (q *Queue) diagnose(now time.Time) {
	q.Rows = queueview.Rows(now, q.Tickets)
	if q.Error != "" {
		q.note(badTrouble, "error", "The queue cannot be read: "+q.Error)
	}
	q.diagnoseTickets(now)
	q.More = max(len(q.Rows)-maxTickets, 0)
	q.Rows = q.Rows[:len(q.Rows)-q.More]
	if q.PausedUntil != nil {
		q.note(pausedQueue, "paused", "Paused "+queueview.UntilText(*q.PausedUntil)+": nobody enters, and all keep their places.")
	}
	if !q.Sum && q.QueueLength > 0 && q.Waiting >= q.QueueLength {
		q.note(someTrouble, "full", fmt.Sprintf("The queue is full: %d wait, and no more may.", q.Waiting))
	}
	q.diagnoseRefusals(now)
	if len(q.History) > 1 {
		q.Picture = newPicture(q.History, now)
	}
}

// diagnoseTickets finds the oldest wait, and the first holder that does not leave. Of a
// holder of another process, it is not known when it entered. A turn that is held ends in time,
// and so does a visit whose requests end.
func (q *Queue) diagnoseTickets(now time.Time) {
	for _, t := range q.Rows {
		switch {
		case t.State == serializer.StateWaiting:
			q.OldestWaiting = max(q.OldestWaiting, now.Sub(t.Since))
		case t.Entered.IsZero() || !t.HeldUntil.IsZero() || q.level == badTrouble:
		case !t.Revoked.IsZero():
			q.note(badTrouble, "stuck", "A request is "+t.StateText()+": its turn ends when its handlers return. "+queueview.FastCGIText+".")
		case now.Sub(cmp.Or(t.LastRequest, t.Entered)) >= stuckAfter && q.Waiting > 0:
			q.note(badTrouble, "stuck", fmt.Sprintf("A request is %s, while %d wait.", t.StateText(), q.Waiting))
		}
	}
}

// diagnoseRefusals says which requests were refused lately, and when the last one was.
func (q *Queue) diagnoseRefusals(now time.Time) {
	for _, reason := range slices.Sorted(maps.Keys(q.Outcomes)) {
		outcome := q.Outcomes[reason]
		ago := max(now.Sub(time.Unix(0, outcome.Refused.Load())), 0)
		if ago >= recent {
			continue
		}
		if serializer.Reason(reason).IsFailure() {
			q.note(badTrouble, "failing", "The storage fails; the log says why.")
		}
		q.note(someTrouble, "refusing", fmt.Sprintf("Refused: %s %s ago (%d since the start).", reason, queueview.Age(ago), outcome.Count.Load()))
	}
}

// note adds a trouble. The first one of the worst level sets the badge. If
// requests are refused while the queue is paused, that is why.
func (q *Queue) note(level troubleLevel, badge, text string) {
	if q.PausedUntil != nil && level == someTrouble {
		badge = "paused"
	}
	if level > q.level {
		q.level, q.Badge = level, badge
	}
	q.Trouble = append(q.Trouble, text)
}

// ID names the queue within the page.
func (q *Queue) ID() string { return "q" + url.PathEscape(q.Path+"/"+q.Prefix) }

// Class is the class of the queue's row.
func (q *Queue) Class() string {
	return map[troubleLevel]string{badTrouble: "is-bad", someTrouble: "is-warn", pausedQueue: "is-warn"}[q.level]
}

// Headline is who is inside, or else what is wrong, in one line.
func (q *Queue) Headline() string {
	first := slices.IndexFunc(q.Rows, func(t queueview.Row) bool { return t.State == serializer.StateInside })
	if first < 0 {
		return strings.Join(q.Trouble, " ")
	}
	t := q.Rows[first]
	text := queueview.Known(t.StateText(), t.About, t.From)
	if q.Inside > 1 {
		text += fmt.Sprintf(" · and %d more", q.Inside-1)
	}
	return text
}
