package serializer

import (
	"cmp"
	"slices"
	"time"
)

// ticketQueues are the queues of an engine, of a directory, or of a list, with what is
// known about their pauses.
type ticketQueues struct {
	byName map[string]*ticketQueue
	pauses pauses
	marks  map[uint64]uint64 // by token: the last listing that showed the mark or preceded it
}

func newTicketQueues() ticketQueues {
	return ticketQueues{byName: make(map[string]*ticketQueue), pauses: make(pauses), marks: make(map[uint64]uint64)}
}

// open returns the queue with a given name, for a ticket that joins it.
func (s *ticketQueues) open(name string) *ticketQueue {
	q := s.byName[name]
	if q == nil {
		q = &ticketQueue{prefix: name, marks: s.marks}
		s.byName[name] = q
		s.setPause(q)
	}
	return q
}

// setPause pauses or resumes a queue, as it should be now.
func (s *ticketQueues) setPause(q *ticketQueue) { q.setPause(s.pauses.end(q)) }

// noteGroup notes that a queue has tickets of a group.
func (s *ticketQueues) noteGroup(q *ticketQueue, group string) {
	if q.noteGroup(group) {
		s.setPause(q)
	}
}

// noteOwner notes that a queue has tickets of an owner.
func (s *ticketQueues) noteOwner(q *ticketQueue, o Owner) {
	if q.noteOwner(o) {
		s.setPause(q)
	}
}

// closeIfEmpty forgets a queue without tickets.
func (s *ticketQueues) closeIfEmpty(q *ticketQueue) {
	if q.Len() == 0 {
		delete(s.byName, q.prefix)
	}
}

// ownerSeen is what a list knows about a ticket's owner.
type ownerSeen struct {
	name  string
	ours  bool  // it is a process of Orderly, not another program
	about Owner // what its file says
	alive *bool // nil if that is not known
}

// states describes the queues for people, ordered by name.
func (s *ticketQueues) states(path string, now time.Time, ownerOf func(*ticket) ownerSeen) []QueueState {
	states := make([]QueueState, 0, len(s.byName))
	for name, end := range s.pauses {
		if s.byName[name] == nil {
			states = append(states, QueueState{Path: path, Prefix: name, PausedUntil: &end, Tickets: []TicketState{}})
		}
	}
	for _, q := range s.byName {
		state := QueueState{Path: path, Prefix: q.prefix, Groups: slices.Clone(q.groups)}
		if !q.pausedUntil.IsZero() {
			state.PausedUntil = new(q.pausedUntil)
		}
		for t := range q.All() {
			ts := t.state(now)
			owner := ownerOf(t)
			ts.Owner, ts.Alive = owner.name, owner.alive
			state.Add(ts, t.Rule)
		}
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b QueueState) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return states
}
