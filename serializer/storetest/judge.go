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
	inside map[*caller]bool
	tokens map[id]bool       // all that entered
	alone  map[string]uint64 // by queue: the greatest token of those that were alone
}

func newJudge() judge {
	return judge{inside: make(map[*caller]bool), tokens: make(map[id]bool), alone: make(map[string]uint64)}
}

// enter records that a caller has its turn.
func (j *judge) enter(c *caller) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := id{c.arrival.Queue, c.turn.Token()}
	if j.tokens[of] {
		c.crowd.Errorf("%v: token %d was issued twice", c, of.number)
	}
	if last := j.alone[of.queue]; of.number < last {
		c.crowd.Errorf("%v: entered with token %d after one that was alone with %d", c, of.number, last)
	}
	j.tokens[of], j.inside[c] = true, true
	if c.arrival.Rule.Alone() {
		j.alone[of.queue] = max(j.alone[of.queue], of.number)
	}
	for other := range j.inside {
		if ahead, shared, room := j.ahead(other); !other.arrival.Rule.Admits(ahead, shared, room) {
			c.crowd.Errorf("%v: inside behind %d others, %d of them readers, with room for %d", other, ahead, shared, room)
		}
	}
}

// ahead counts those inside the same queue whose tickets are smaller; room is their
// narrowest capacity.
func (j *judge) ahead(c *caller) (ahead, shared, room int) {
	for other := range j.inside {
		if other.arrival.Queue != c.arrival.Queue || other.turn.Token() >= c.turn.Token() {
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
	delete(j.inside, c)
}
