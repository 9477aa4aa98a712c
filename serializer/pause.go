package serializer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Forever is the end of a pause that lasts until somebody resumes the queue.
var Forever = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// Pause pauses a queue until a moment of the wall clock, when the pause ends by itself.
// The zero time means until the queue is resumed. Another pause of the same name replaces
// the end. A name that ends in * stands for all queues whose names begin so, also for
// those that have no ticket yet. It has at most 80 bytes before the *: longer names are cut.
//
// Nobody enters a paused queue. Its holders finish, and all others keep their tickets and
// their order. Timeouts keep running. A pause applies to every process that shares the
// queue, including processes that start later. Pause returns when the engine of this
// process obeys; other processes follow within moments.
func (e *Engine) Pause(ctx context.Context, name string, until time.Time) error {
	end, err := pauseEnd(name, until)
	if err != nil {
		return err
	}
	return e.using(ctx, func(ctx context.Context) error { return e.store.Pause(ctx, name, end) })
}

// Resume ends a pause. It is not an error if there is none. A name that ends in * stands
// for all pauses of queues whose names begin so. A queue that is paused by its own name
// and by one with a * admits again when both pauses have ended.
func (e *Engine) Resume(ctx context.Context, name string) error {
	return e.using(ctx, func(ctx context.Context) error {
		for _, paused := range e.pausesOf(name) {
			if err := e.store.Resume(ctx, paused); err != nil {
				return err
			}
		}
		return nil
	})
}

// PausedUntil returns when the pause of a queue ends, or nil if it is not paused. A name that
// ends in * is paused if all queues are whose names begin so.
func (e *Engine) PausedUntil(queue string) *time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pausedUntilLocked(queue)
}

func (e *Engine) pausedUntilLocked(queue string) *time.Time {
	if end := e.pauses.end(queue); !end.IsZero() {
		return &end
	}
	return nil
}

// pausesOf lists the pauses that a name stands for. The store is asked to end the pause of
// the name itself even if the engine has not heard of it.
func (e *Engine) pausesOf(name string) []string {
	names := []string{name}
	start, all := strings.CutSuffix(name, "*")
	if !all {
		return names
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for paused := range e.pauses {
		if paused != name && strings.HasPrefix(paused, start) {
			names = append(names, paused)
		}
	}
	slices.Sort(names[1:])
	return names
}

// pauseEnd returns the end of a requested pause, in UTC and cut to microseconds.
func pauseEnd(name string, until time.Time) (time.Time, error) {
	start, all := strings.CutSuffix(name, "*")
	check := CheckQueueName
	if all {
		check = checkStart
	}
	switch err := check(start); {
	case name == "":
		return until, errors.New("a queue without a name cannot be paused")
	case err != nil:
		return until, fmt.Errorf("pausing queue: %w", err)
	case all && len(start) > keptQueueName:
		return until, fmt.Errorf("pausing queues %q: the name is longer than %d bytes and a *, and those of long queues are cut there; "+
			"pause fewer bytes and a *, or each queue by its whole name", name, keptQueueName)
	case until.IsZero() || until.After(Forever):
		return Forever, nil
	case !until.After(time.Now()):
		return until, fmt.Errorf("pausing queue %q: the end, %s, has passed", name, until.Format(time.RFC3339))
	}
	return until.Round(0).UTC().Truncate(time.Microsecond), nil
}

// pauses maps the names of paused queues, perhaps with a * at the end, to the ends.
type pauses map[string]time.Time

// end returns when the last pause of a queue ends; zero if there is none.
func (p pauses) end(queue string) (end time.Time) {
	for name, of := range p {
		if Matches(name, queue) && of.After(end) {
			end = of
		}
	}
	return end
}

// Paused implements [Events].
func (e events) Paused(name string, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notePauseLocked(name, until)
}

// notePauseLocked notes a pause or its end, and applies it to all queues. Each process ends a pause
// by its own time of day. Nobody gets in beside others for that: who may enter follows from
// the order alone.
func (e *Engine) notePauseLocked(name string, until time.Time) {
	switch {
	case until.Equal(e.pauses[name]): // a second file or key says the same
	case until.After(time.Now()):
		e.pauses[name] = until
		e.endPauseIn(name, until)
		go e.log.Warn("queue paused", "path", e.Path(), "queue", name, "until", until.Format(time.RFC3339))
	case !e.pauses[name].IsZero():
		delete(e.pauses, name)
		go e.log.Warn("queue resumed", "path", e.Path(), "queue", name)
	}
	for _, q := range e.queues {
		e.applyPauseLocked(q)
	}
}

// endPauseIn ends a pause when its time has come, unless it has another end by then. It looks at the
// clock each second, because somebody may set it, or suspend the machine.
func (e *Engine) endPauseIn(name string, until time.Time) {
	time.AfterFunc(min(time.Until(until), time.Second), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case e.closed || !until.Equal(e.pauses[name]):
		case until.After(time.Now()):
			e.endPauseIn(name, until)
		default:
			e.notePauseLocked(name, time.Time{})
		}
	})
}

// applyPauseLocked pauses or resumes a queue, as it should be now. From the order alone,
// other processes do not know which tickets are inside a paused queue.
func (e *Engine) applyPauseLocked(q *ticketQueue) {
	q.setPaused(e.closed || !e.pauses.end(q.name).IsZero())
	if q.paused {
		for t := range q.all() {
			if t.Local() && t.admitted {
				e.store.SetInside(t, true)
			}
		}
	}
	e.advanceLocked(q)
}
