// Package statuspage is the page that shows the queues of a process: what it says of each
// queue, what is wrong, and its presentation.
package statuspage

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Queue is a row of the page: a queue, or the sum of all that share a prefix, as far as this
// process has requests in them.
type Queue struct {
	queueapi.Queue
	Sum           bool
	QueueLength   int // how many may wait; 0 is no limit
	DryRun        bool
	OldestWaiting time.Duration
	Outcomes      map[string]int64     // requests since the process began
	LastRefused   map[string]time.Time // by outcome
	Trouble       []string
	Control       string // its name for pauses; "" if it cannot be paused

	Badge string // the worst trouble in a word
	level troubleLevel
	now   time.Time
}

// troubleLevel is how bad it is.
type troubleLevel int

const (
	pastTrouble  troubleLevel = iota + 1 // requests were refused in the last ten minutes
	pausedQueue                          // somebody wants it so
	someTrouble                          // requests are refused, or wait for long
	badTrouble                           // the queue is stuck, or its storage fails
	worstTrouble                         // the queue cannot be read
)

const (
	stuckAfter = time.Minute // a hold, while others wait for it
	longWait   = 30 * time.Second
	recent     = 10 * time.Minute
)

// Diagnose fills in the queue's trouble.
func (q *Queue) Diagnose(now time.Time) {
	q.now, q.Trouble = now, make([]string, 0)
	if q.Error != "" {
		q.note(worstTrouble, "error", "The queue cannot be read: "+q.Error)
	}
	stuck := q.diagnoseTickets()
	if q.PausedUntil != nil {
		q.note(pausedQueue, "paused", "Paused "+queueapi.UntilText(*q.PausedUntil)+": nobody enters, and all keep their places.")
	}
	if !q.Sum && q.QueueLength > 0 && q.Waiting >= q.QueueLength {
		q.note(someTrouble, "full", fmt.Sprintf("The queue is full: %d wait, and no more may.", q.Waiting))
	}
	if !stuck && !q.Sum && q.PausedUntil == nil && q.OldestWaiting >= longWait {
		q.note(someTrouble, "slow", "A request has waited for "+queueapi.Age(q.OldestWaiting)+".")
	}
	for reason, last := range q.LastRefused {
		if serializer.Reason(reason).IsFailure() && now.Sub(last) < recent {
			q.note(badTrouble, "failing", "The storage fails; the log says why.")
		}
	}
	if text, last := q.refusalText(); last < time.Minute {
		q.note(someTrouble, "refusing", "Refused: "+text+".")
	} else if text != "" {
		q.note(pastTrouble, "", "Refused: "+text+".")
	}
}

// diagnoseTickets finds the oldest wait, and a holder that does not leave.
func (q *Queue) diagnoseTickets() (stuck bool) {
	for _, t := range q.Rows() {
		age := max(q.now.Sub(t.Since), 0)
		switch {
		case t.TicketState.State == serializer.StateWaiting:
			q.OldestWaiting = max(q.OldestWaiting, age)
		case stuck:
		case t.revocation() != "":
			stuck = true
			q.note(badTrouble, "stuck", "A request is "+t.State()+": its turn ends when its handlers return. "+queueapi.FastCGIText+".")
		case !t.Entered.IsZero() && age >= stuckAfter && q.Waiting > 0: // of a remote one, the age includes its wait
			stuck = true
			q.note(badTrouble, "stuck", fmt.Sprintf("A request is %s, while %d wait.", t.State(), q.Waiting))
		}
	}
	return stuck
}

// note adds a trouble. The first one of the worst level sets the badge.
func (q *Queue) note(level troubleLevel, badge, text string) {
	if level > q.level {
		q.level, q.Badge = level, badge
	}
	q.Trouble = append(q.Trouble, text)
}

// ID names the queue within the page.
func (q *Queue) ID() string { return "q" + url.PathEscape(q.Path+"/"+q.Prefix) }

// Class is the class of the queue's row.
func (q *Queue) Class() string {
	switch {
	case q.level >= badTrouble:
		return "is-bad"
	case q.level >= pausedQueue:
		return "is-warn"
	}
	return ""
}

// Headline is who is inside, or else what is wrong, in one line.
func (q *Queue) Headline() string {
	for _, t := range q.Rows() {
		if t.TicketState.State != serializer.StateInside {
			continue
		}
		text := strings.Join(slices.DeleteFunc([]string{t.State(), queueapi.RequestText(t.TicketState), queueapi.ClientText(t.TicketState)}, func(part string) bool { return part == "" }), " · ")
		if q.Inside > 1 {
			text += fmt.Sprintf(" · and %d more", q.Inside-1)
		}
		return text
	}
	return strings.Join(q.Trouble, " ")
}

// More is how many tickets are not shown.
func (q *Queue) More() int { return max(q.Inside+q.Waiting-len(q.Tickets), 0) }

// Rows are the rows of the tickets' table.
func (q *Queue) Rows() (rows []row) {
	for i, t := range q.Tickets {
		rows = append(rows, row{t, i + 1, q.now})
	}
	return rows
}

// row is a ticket.
type row struct {
	serializer.TicketState
	Place int
	now   time.Time
}

// State is the ticket's state, since when, and what else is known. Of a holder of another
// process, only the arrival is known.
func (t row) State() string {
	text := t.TicketState.State + " for "
	if t.TicketState.State == serializer.StateInside && t.Entered.IsZero() {
		text += "at most "
	}
	return text + queueapi.Age(t.now.Sub(t.Since)) + t.revocation()
}

// revocation says why a turn should be over, if it should.
func (t row) revocation() (text string) {
	v, ok := t.Requester.(interface{ HoldTimeout() time.Duration })
	if ok && !t.Entered.IsZero() && v.HoldTimeout() > 0 && t.now.Sub(t.Entered) >= v.HoldTimeout() {
		text += ", past hold_timeout"
	}
	if !t.Revoked.IsZero() {
		text += ", revoked " + queueapi.Age(t.now.Sub(t.Revoked)) + " ago"
	}
	return text
}
