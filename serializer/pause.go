package serializer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Pauser is an [Engine] that can pause its queues. It is optional.
//
// Nobody enters a paused queue. Its holders finish, and all others keep their tickets
// and their order. Timeouts keep running. A pause applies to every process that shares
// the queue, including processes that start later.
type Pauser interface {
	// Pause pauses a queue until a moment of the wall clock, when the pause ends by
	// itself. The zero time means until the queue is resumed. Another pause of the same
	// name replaces the end. Pause returns when the engine of this process obeys; other
	// processes follow within moments.
	//
	// The name is an [Arrival.Queue], or an [Arrival.Group], which pauses each queue of
	// the group. No ticket or earlier arrival is needed.
	Pause(ctx context.Context, queue string, until time.Time) error

	// Resume ends a pause. It is not an error if there is none. A queue that is paused
	// by its own name and by its group's admits again when both pauses have ended.
	Resume(ctx context.Context, queue string) error
}

// Resumed is the value of [QueueState.PausedUntil] for a pause that lasts until
// somebody resumes the queue.
var Resumed = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// PauseEnd returns the end of a requested pause, in UTC and cut to microseconds;
// [Resumed] for the zero time. The error is for a queue without a name, or an end in
// the past. It is for engines.
func PauseEnd(queue string, until time.Time) (time.Time, error) {
	if queue == "" {
		return until, errNameless
	}
	if until.IsZero() || until.After(Resumed) {
		return Resumed, nil
	}
	if !until.After(time.Now()) {
		return until, fmt.Errorf("pausing queue %q: the end, %s, has passed", queue, until.Format(time.RFC3339))
	}
	return until.Round(0).UTC().Truncate(time.Microsecond), nil
}

var errNameless = errors.New("a queue without a name cannot be paused")

// pauses maps the names of queues and groups to the ends of their pauses.
type pauses map[string]time.Time

// end returns when the last pause of a queue ends; zero if there is none.
func (p pauses) end(q *ticketQueue) time.Time {
	end := p[q.prefix]
	for _, group := range q.groups {
		if of := p[group]; of.After(end) {
			end = of
		}
	}
	if !q.mayBeOfAnyGroup() {
		return end
	}
	for name, of := range p {
		if of.After(end) && FitsGroup(q.prefix, name) {
			end = of
		}
	}
	return end
}

// dropEnded removes the pauses that are over.
func (p pauses) dropEnded(now time.Time) {
	maps.DeleteFunc(p, func(_ string, end time.Time) bool { return !end.After(now) })
}

// next returns when the first pause ends by itself. ok is false if none does.
func (p pauses) next() (end time.Time, ok bool) {
	if len(p) == 0 {
		return end, false
	}
	end = slices.MinFunc(slices.Collect(maps.Values(p)), time.Time.Compare)
	return end, end.Before(Resumed)
}

// setPause sets until when the queue is paused; zero means that it is not.
func (q *ticketQueue) setPause(end time.Time) {
	q.pausedUntil = end
	q.SetPaused(!end.IsZero())
}

// noteGroup notes the group of an arrival, "" for none. It reports whether that can
// change which pauses apply to the queue.
func (q *ticketQueue) noteGroup(group string) bool {
	if group == "" {
		before := q.mayBeOfAnyGroup()
		q.ungrouped = true
		return before
	}
	if slices.Contains(q.groups, group) {
		return false
	}
	q.groups = append(q.groups, group)
	return true
}

// noteOwner notes the group of an owner's tickets. It reports whether that can change
// which pauses apply to the queue.
func (q *ticketQueue) noteOwner(o Owner) bool {
	if !o.GroupUnknown {
		return q.noteGroup(o.Group)
	}
	before := q.mayBeOfAnyGroup()
	q.unsaid = true
	return q.mayBeOfAnyGroup() != before
}

// mayBeOfAnyGroup reports whether only the queue's name shows to which groups it may
// belong. That is so if a process of an older version has tickets there, and no arrival
// says that it has no group.
func (q *ticketQueue) mayBeOfAnyGroup() bool { return q.unsaid && !q.ungrouped }
