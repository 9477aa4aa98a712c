package enginetest

import "sync"

// judge watches all visitors that enter. Each must be allowed beside the holders
// whose tickets are smaller, and no ticket may be issued twice. Nobody may enter
// after a visitor that was alone and has a greater ticket.
type judge struct {
	mu     sync.Mutex
	queues map[string]*judged
}

// judged is what the judge knows of a queue.
type judged struct {
	inside map[*visitor]bool
	tokens map[uint64]bool // all that entered
	last   uint64          // the greatest one of those that were alone
}

func (j *judge) queueLocked(name string) *judged {
	q := j.queues[name]
	if q != nil {
		return q
	}
	if j.queues == nil {
		j.queues = make(map[string]*judged)
	}
	q = &judged{inside: make(map[*visitor]bool), tokens: make(map[uint64]bool)}
	j.queues[name] = q
	return q
}

// enter records that a visitor's Enter has returned.
func (j *judge) enter(v *visitor) {
	j.mu.Lock()
	defer j.mu.Unlock()
	q, token := j.queueLocked(v.arrival.Queue), v.turn.Token()
	if q.tokens[token] {
		v.space.Errorf("%v: token %d was issued twice", v, token)
	}
	if token < q.last {
		v.space.Errorf("%v: entered with token %d after one that was alone with %d", v, token, q.last)
	}
	q.tokens[token] = true
	q.inside[v] = true
	if v.arrival.Rule.Capacity() == 1 {
		q.last = max(q.last, token)
	}
	for u := range q.inside {
		if ahead, shared := q.ahead(u); !u.arrival.Rule.Admits(ahead, shared) {
			v.space.Errorf("%v: inside behind %d others, %d of them readers", u, ahead, shared)
		}
	}
}

// ahead counts those inside whose tickets are smaller.
func (q *judged) ahead(v *visitor) (ahead, shared int) {
	for u := range q.inside {
		if u.turn.Token() >= v.turn.Token() {
			continue
		}
		ahead++
		if u.arrival.Rule.Shared {
			shared++
		}
	}
	return ahead, shared
}

// leave records that a visitor is about to call Leave.
func (j *judge) leave(v *visitor) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.queueLocked(v.arrival.Queue).inside, v)
}
