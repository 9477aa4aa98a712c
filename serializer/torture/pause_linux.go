package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Pausing is a pause that a process should make or confirm.
type Pausing struct {
	Name  string
	Until int64 // in microseconds of the wall clock; distinguishes it from other pauses
}

// The length of a pause that is resumed, because every process must confirm it before.
const longPause = time.Minute

// pauseQueue pauses a queue until it is resumed, or until the pause ends by itself. It
// asks each process to confirm the pause. From then on until the pause ends, the oracle
// accepts no entry with a greater number than those that are inside.
func pauseQueue(h *harness, r *rand.Rand) bool {
	if !h.waitUntilKnown(0) { // a pause in a directory that was replaced reaches only those who still work there
		return false
	}
	length, resumed := milliseconds(r, 400, 2500), r.IntN(2) == 0
	if resumed {
		length = longPause
	}
	end := now() + int64(length) // not after the pause's, whatever comes in between
	c := Pausing{pausable[r.IntN(len(pausable))], time.Now().Add(length).UnixMicro()}
	p := &pause{c.Until, never, make(map[[3]int64]uint64)}
	h.tell(func() { h.pause = p })
	made := h.callAny(r, "Process.Pause", c)
	time.Sleep(milliseconds(r, 0, 400)) // a process must notice the pause even if it is not asked
	if made && !resumed {
		h.tell(func() { p.to = end - int64(time.Millisecond) }) // the clocks drift
		h.confirm(c, end)
		time.Sleep(time.Duration(end - now()))
		return true
	}
	if made && !h.confirm(c, now()+int64(h.Patience)) && !h.ending.Load() {
		h.problem("not every process knows after %v that %q is paused", h.Patience, c.Name)
	}
	h.tell(func() { p.to = now() })
	for start := now(); !h.callAny(r, "Process.Resume", c); time.Sleep(time.Millisecond) { // also if its maker was killed
		if since(start) > graceTime {
			h.problem("%q could not be resumed for %v", c.Name, graceTime)
			break
		}
	}
	return made
}

// confirm makes all processes confirm a pause, and reports whether they did in time.
func (h *harness) confirm(c Pausing, until int64) (all bool) {
	for all = false; !all && now() < until && !h.ending.Load(); time.Sleep(5 * time.Millisecond) {
		all = true
		for _, s := range h.slots {
			all = h.call(s, "Process.Confirm", c) && all
		}
	}
	return all
}

// Pause pauses a queue.
func (p *process) Pause(c Pausing, _ *bool) error {
	return p.engine.Load().Pause(context.Background(), c.Name, time.UnixMicro(c.Until))
}

// Resume ends a pause.
func (p *process) Resume(c Pausing, _ *bool) error {
	return p.engine.Load().Resume(context.Background(), c.Name)
}

// Confirm notes which tokens of the newest engine are inside. It is an error if the engine
// does not know of the pause.
func (p *process) Confirm(c Pausing, _ *bool) error {
	e := p.engine.Load()
	states, err := e.Queues(context.Background())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(states, func(s serializer.QueueState) bool {
		return s.Prefix == c.Name && s.PausedUntil != nil && s.PausedUntil.UnixMicro() == c.Until
	}) {
		return fmt.Errorf("%q is not paused", c.Name)
	}
	tickets := make(map[string][]serializer.TicketState)
	for _, s := range states {
		tickets[s.Prefix] = s.Tickets
	}
	for _, i := range queuesOf(c.Name) {
		last := lastInside(tickets[queues[i].Queue], queues[i])
		p.put(confirms, record{queue: i, opened: e.opened, token: last, arrived: c.Until})
	}
	return nil
}

// lastInside returns the last token of own tickets that are inside, or may be: one without a slot is listed
// as waiting.
func lastInside(tickets []serializer.TicketState, q serializer.Arrival) (last uint64) {
	for i, t := range tickets {
		if t.Requester != nil && (t.State == serializer.StateInside || q.Slots != nil && i < q.Rule.Limit) {
			last = max(last, tokenOf(t))
		}
	}
	return last
}

// Evict takes one ticket out of each queue, of whichever process, by a random number.
func (p *process) Evict(random uint64, _ *bool) error {
	e := p.engine.Load()
	states, err := e.Queues(context.Background())
	for _, s := range states {
		queue := slices.IndexFunc(queues, func(q serializer.Arrival) bool { return q.Queue == s.Prefix })
		if queue >= 0 && len(s.Tickets) > 0 {
			token := tokenOf(s.Tickets[random%uint64(len(s.Tickets))])
			p.put(evicts, record{queue: queue, token: token})
			_ = e.Evict(context.Background(), s.Prefix, token) // it may be gone by now
		}
	}
	return err
}

// tokenOf returns the token of a ticket, or 0 if it has none.
func tokenOf(t serializer.TicketState) uint64 {
	token, _ := strconv.ParseUint(t.Token, 10, 64)
	return token
}

// pause is the last pause, as the oracle knows it.
type pause struct {
	until     int64               // as announced; distinguishes it from other pauses
	to        int64               // when it began to end
	confirmed map[[3]int64]uint64 // the greatest token of a queue that was inside when an engine knew of it
}

// placeOf distinguishes a queue of an engine.
func placeOf(r *record) [3]int64 { return [3]int64{int64(r.queue), int64(r.process), r.opened} }

// forbids reports whether an entry is an intrusion.
func (p *pause) forbids(e *record) bool {
	inside, ok := p.confirmed[placeOf(e)]
	return ok && e.at < p.to && e.token > inside
}
