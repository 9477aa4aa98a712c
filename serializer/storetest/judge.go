package storetest

import (
	"sync"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// judge watches all callers that enter. Each must be allowed beside the holders whose
// tickets are smaller, and no ticket may be issued twice. Nobody may enter after a caller
// that was alone and has a greater ticket.
type judge struct {
	mu     sync.Mutex
	queues map[string]*judged
}

// judged is what the judge knows of a queue.
type judged struct {
	inside map[*caller]bool
	tokens map[uint64]bool // all that entered
	last   uint64          // the greatest one of those that were alone
}

func (j *judge) queueLocked(name string) *judged {
	q := j.queues[name]
	if q == nil {
		q = &judged{inside: make(map[*caller]bool), tokens: make(map[uint64]bool)}
		j.queues[name] = q
	}
	return q
}

// enter records that a caller has its turn.
func (j *judge) enter(c *caller) {
	j.mu.Lock()
	defer j.mu.Unlock()
	q, token := j.queueLocked(c.arrival.Queue), c.turn.Token()
	if q.tokens[token] {
		c.crowd.Errorf("%v: token %d was issued twice", c, token)
	}
	if token < q.last {
		c.crowd.Errorf("%v: entered with token %d after one that was alone with %d", c, token, q.last)
	}
	q.tokens[token] = true
	q.inside[c] = true
	if c.arrival.Rule.Alone() {
		q.last = max(q.last, token)
	}
	for other := range q.inside {
		if ahead, shared, room := q.ahead(other); !other.arrival.Rule.Admits(ahead, shared, room) {
			c.crowd.Errorf("%v: inside behind %d others, %d of them readers, with room for %d", other, ahead, shared, room)
		}
	}
}

// ahead counts those inside whose tickets are smaller; room is their narrowest capacity.
func (q *judged) ahead(c *caller) (ahead, shared, room int) {
	for other := range q.inside {
		if other.turn.Token() >= c.turn.Token() {
			continue
		}
		ahead++
		if other.arrival.Rule.Shared {
			shared++
		}
		room = queue.Narrower(room, other.arrival.Rule.Capacity())
	}
	return ahead, shared, room
}

// leave records that a caller is about to leave.
func (j *judge) leave(c *caller) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.queueLocked(c.arrival.Queue).inside, c)
}
