package main

import "time"

// pauseSpan is a pause as the oracle knows it.
type pauseSpan struct {
	number  int
	queues  []int
	set     int64 // when all processes must know of it; 0 until then
	to      int64 // when it began to end
	ordered bool  // it ended because the queue was resumed
}

// knowledge is what an engine has said about the last pause of a queue: no token above
// this one enters.
type knowledge struct {
	pause *pauseSpan
	token uint64
}

// engineID is one engine of one process.
type engineID struct{ process, engine int }

// pausesSeen is what the oracle has seen of pauses.
type pausesSeen struct {
	spans   []*pauseSpan
	known   map[engineID]map[int]knowledge // by queue
	late    times                          // entries through engines that had not noticed a pause in time
	resumed times                          // between resuming a queue and the next entry
	ended   times                          // between the end of a pause and the next entry
}

// beginPause notes that queues are about to be paused.
func (o *oracle) beginPause(queues []int) *pauseSpan {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := &pauseSpan{number: len(o.pauses.spans) + 1, queues: queues, to: never}
	o.pauses.spans = append(o.pauses.spans, p)
	for _, q := range queues {
		o.queues[q].paused = nil // later entries no longer follow the previous pause
	}
	return p
}

// paused notes that all processes should know of a pause by now.
func (o *oracle) paused(p *pauseSpan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.set = now()
	for _, q := range p.queues {
		o.queues[q].paused = p
	}
}

// endPause notes when a pause ends.
func (o *oracle) endPause(p *pauseSpan, at int64, ordered bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.to, p.ordered = min(p.to, at), ordered
}

// know notes what an engine says about a pause.
func (j *judge) know(r record) {
	id := engineID{r.process, r.engine}
	if j.pauses.known[id] == nil {
		j.pauses.known[id] = make(map[int]knowledge)
	}
	j.pauses.known[id][r.queue] = knowledge{j.pauses.spans[r.arrived-1], r.token}
}

// checkPause judges an entry by the pauses of its queue.
func (j *judge) checkPause(q *queueOracle, e record) {
	if k, ok := j.pauses.known[engineID{e.process, e.engine}][e.queue]; ok && e.at < k.pause.to && e.token > k.token {
		j.found.intruded++
		j.keepExample([]record{e}, "intrusion in %q: %s while it was paused; no token after %d should have entered", q.prefix, j.describe(e), k.token)
		return
	}
	p := q.paused
	if p == nil || p.set == 0 || q.kind != exclusive {
		return
	}
	switch {
	case e.at > p.to:
		q.paused = nil
		if !j.disturbed(p.to, e.at) {
			j.noteResumption(p, e)
		}
	case e.at > p.set && !j.disturbed(p.set, e.at):
		j.pauses.late = append(j.pauses.late, time.Duration(e.at-p.set))
	}
}

func (j *judge) noteResumption(p *pauseSpan, e record) {
	took := time.Duration(e.at - p.to)
	if took > recoveryLimit {
		j.keepExample([]record{e, {arrived: p.set, at: p.to}}, "nobody entered %q for %v after pause %d had ended: next was %s", j.queues[e.queue].prefix, took, p.number, j.describe(e))
	}
	if p.ordered {
		j.pauses.resumed = append(j.pauses.resumed, took)
	} else {
		j.pauses.ended = append(j.pauses.ended, took)
	}
}

// disturbed reports whether a fault other than a pause was in progress in a period.
func (j *judge) disturbed(from, to int64) bool {
	faults := 0
	for _, t := range j.troubled {
		if t.from < to && from < t.to {
			faults++
		}
	}
	return faults > 1
}
