package main

import (
	"cmp"
	"errors"
	"slices"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// noteRefusal records a refused arrival in a queue with keep.
func (p *process) noteRefusal(err error, r record) {
	if refused, ok := errors.AsType[*serializer.Refused](err); ok && refused.Token != 0 {
		r.refused, r.ousted, r.token = true, refused.Reason == serializer.ReasonSuperseded, refused.Token
		p.note(r)
	}
}

// checkLatest judges the arrivals of the queues with keep, once all of them have ended.
func (o *oracle) checkLatest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.queues {
		if q := &o.queues[i]; q.keep > 0 {
			slices.SortStableFunc(q.arrivals, func(a, b record) int { return cmp.Compare(a.token, b.token) })
			for i, r := range q.arrivals {
				o.checkArrival(q, i, r)
			}
			q.arrivals = nil
		}
	}
}

// checkArrival judges one of the arrivals in order. An arrival that was superseded must
// not have entered, and enough others must have come after it.
func (j *judge) checkArrival(q *queueOracle, i int, r record) {
	if !r.ousted {
		return
	}
	for _, neighbour := range q.arrivals[max(i-1, 0):min(i+2, len(q.arrivals))] {
		if neighbour.token == r.token && !neighbour.refused && !j.forgiven(r, neighbour) {
			j.found.wronged++
			j.keepExample([]record{r, neighbour}, "superseded in %q, and entered: %s", q.prefix, j.describe(r, neighbour))
		}
	}
	later := 0
	for _, other := range q.arrivals[i+1:] {
		if later >= q.keep {
			break
		}
		if other.token > r.token && other.arrived < r.at {
			later++
		}
	}
	if later < q.keep && !j.incomplete(r) {
		j.found.wronged++
		j.keepExample([]record{r}, "superseded in %q, and only %d came later: %s", q.prefix, later, j.describe(r))
	}
}

// incomplete reports whether the log may lack arrivals from the time of this one: those
// of processes that were killed, and those in another directory.
func (j *judge) incomplete(r record) bool {
	for _, d := range j.deaths {
		if d.at > r.arrived && d.at < r.at+int64(longTimeout+graceTime) {
			return true
		}
	}
	return slices.ContainsFunc(j.replaced, func(m moment) bool { return m.to > r.arrived && m.from < r.at })
}
