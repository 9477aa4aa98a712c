package serializer

import (
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// Rule determines which other arrivals may be inside together with this one. The zero
// value is the strictest: to be alone.
type Rule = queue.Rule

// ticketQueue is one queue of the memory engine or of the file engine.
type ticketQueue struct {
	queue.Queue[*ticket]
	prefix      string
	groups      []string  // of its arrivals
	ungrouped   bool      // some arrivals have no group
	unsaid      bool      // the group of some tickets is unknown
	pausedUntil time.Time // zero if the queue is not paused

	// For the file engine.
	unnamed int               // remote tickets whose owner is not known
	marks   map[uint64]uint64 // by token, remote tickets that are inside, as their owners say; see pausing
	special int               // local tickets that need the rules of remote ones
	blocked bool              // included in directory.blocked
}

// insert puts a ticket into its place.
func (q *ticketQueue) insert(t *ticket) {
	t.queue = q
	q.Insert(t)
	q.count(t, 1)
}

// remove takes a ticket out.
func (q *ticketQueue) remove(t *ticket) {
	q.Remove(t)
	q.count(t, -1)
}

func (q *ticketQueue) count(t *ticket, by int) {
	switch {
	case !t.Local() && !t.known:
		q.unnamed += by
	case t.Local() && t.needsRules():
		q.special += by
	}
}

// identify notes the rule of a ticket whose owner is known.
func (q *ticketQueue) identify(t *ticket, r Rule) {
	if !t.known {
		t.known = true
		q.unnamed--
	}
	q.Identify(t, r)
}

// advance admits all tickets that may enter, and calls grant for the local ones. It
// reports whether there were any local ones.
func (q *ticketQueue) advance(grant func(*ticket)) (granted bool) {
	if q.Paused() {
		q.passMarked()
		return false
	}
	for t := q.Admit(); t != nil; t = q.Admit() {
		if t.Local() {
			grant(t)
			granted = true
		}
	}
	return granted
}

// passMarked moves the border of a paused queue past the remote tickets that are inside.
func (q *ticketQueue) passMarked() {
	for t := q.Border(); t != nil && !t.Local() && t.isInside(); t = q.Border() {
		q.Pass()
	}
}

// awaitsEvents reports whether a local ticket waits for another process: for remote
// tickets, for an arrival that supersedes it, or for the end of a pause.
func (q *ticketQueue) awaitsEvents() bool {
	return q.LocalWaiting() > 0 && (q.Remote() > 0 || q.Paused() || q.Bounded())
}

// find returns the ticket with a token, or nil; q may be nil.
func (q *ticketQueue) find(token uint64) *ticket {
	if q == nil {
		return nil
	}
	for t := range q.All() {
		if t.Stamp == token {
			return t
		}
	}
	return nil
}

// counts returns how many are inside and how many wait; q may be nil.
func (q *ticketQueue) counts() (inside, waiting int) {
	if q == nil {
		return 0, 0
	}
	return q.Inside(), q.Waiting()
}
