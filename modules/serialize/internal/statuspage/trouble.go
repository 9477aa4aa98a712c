package statuspage

import (
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
)

// troubleLevel is how bad it is.
type troubleLevel int

const (
	noTrouble    troubleLevel = iota
	pastTrouble               // requests were refused in the last ten minutes
	someTrouble               // requests are refused, or wait for long
	badTrouble                // the queue is stuck
	worstTrouble              // the queue cannot be read
)

// What counts as trouble. A hold is stuck only while others wait for it.
const (
	stuckAfter = time.Minute
	longWait   = 30 * time.Second
)

// Diagnose fills in the queue's trouble, the worst first.
func (q *Queue) Diagnose() {
	q.Trouble = make([]string, 0)
	stuck := q.Waiting > 0 && q.held >= stuckAfter
	if q.Error != "" {
		q.note(worstTrouble, "error", "The queue cannot be read.")
	}
	if q.PausedUntil != nil {
		q.note(someTrouble, "paused", fmt.Sprintf("Paused %s: nobody enters, and all keep their places.", queueapi.UntilText(*q.PausedUntil)))
	}
	if stuck {
		q.note(badTrouble, "stuck", fmt.Sprintf("A request has been inside for %s while %s.", Span(q.held.Seconds()), othersWait(q.Waiting)))
	}
	if q.Failed > 0 {
		q.note(badTrouble, "failing", fmt.Sprintf("%s refused in the last 10 minutes because the storage failed; the log says why.", requestsWere(q.Failed)))
	}
	if q.QueueLength > 0 && q.Waiting >= q.QueueLength && !q.Many {
		q.note(someTrouble, "full", fmt.Sprintf("The queue is full: %s, and no more may.", othersWait(q.Waiting)))
	}
	if !stuck && q.PausedUntil == nil && !q.Many && q.OldestWaiting >= longWait.Seconds() {
		q.note(someTrouble, "slow", fmt.Sprintf("A request has waited for %s.", Span(q.OldestWaiting)))
	}
	switch {
	case q.refusedNow > 0:
		q.note(someTrouble, "refusing", fmt.Sprintf("%s refused in the last minute.", requestsWere(q.refusedNow)))
	case q.Refused > q.Failed:
		q.note(pastTrouble, "", fmt.Sprintf("%s refused in the last 10 minutes.", requestsWere(q.Refused-q.Failed)))
	}
}

// note adds a trouble. The first one of the worst level sets the badge.
func (q *Queue) note(level troubleLevel, badge, text string) {
	if level > q.level {
		q.level, q.badge = level, badge
	}
	q.Trouble = append(q.Trouble, text)
}

func othersWait(n int) string {
	if n == 1 {
		return "another one waits"
	}
	return fmt.Sprintf("%d wait", n)
}

func requestsWere(n int64) string {
	if n == 1 {
		return "A request was"
	}
	return fmt.Sprintf("%d requests were", n)
}

// Badge is the worst trouble in a word.
func (q *Queue) Badge() string { return q.badge }
