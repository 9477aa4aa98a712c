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
	c := Pausing{pausable[r.IntN(len(pausable))], time.Now().Add(length).UnixMicro()}
	end := now() + int64(length)
	of := queuesOf(c.Name)
	h.tell(func(o *oracle) { o.beginPause(of, c.Until) })
	made := h.callAny(r, "Process.Pause", c)
	time.Sleep(milliseconds(r, 0, 400)) // a process must notice the pause even if it is not asked
	if made && !resumed {
		h.tell(func(o *oracle) { o.endPause(of, end-int64(time.Millisecond)) }) // the clocks drift
		h.confirm(c, end)
		time.Sleep(time.Duration(end - now()))
		return true
	}
	if made && !h.confirm(c, now()+int64(h.Patience)) && !h.ending.Load() {
		h.problem("not every process knows after %v that %q is paused", h.Patience, c.Name)
	}
	h.tell(func(o *oracle) { o.endPause(of, now()) })
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
	for _, q := range queuesOf(c.Name) {
		inside := tokensOf(states, q, func(t serializer.TicketState) bool {
			return t.Requester != nil && t.State == serializer.StateInside
		})
		p.note(record{who: who{process: p.Number}, what: confirms, queue: q, opened: e.opened,
			token: slices.Max(append(inside, 0)), arrived: c.Until, at: now()})
	}
	return nil
}

// Evict takes one ticket out of each queue, of whichever process.
func (p *process) Evict(int, *bool) error {
	e := p.engine.Load()
	states, err := e.Queues(context.Background())
	if err != nil {
		return err
	}
	for i, q := range queues {
		tokens := tokensOf(states, i, func(serializer.TicketState) bool { return true })
		if len(tokens) == 0 {
			continue
		}
		token := tokens[rand.IntN(len(tokens))]
		p.note(record{who: who{process: p.Number}, what: evicts, queue: i, token: token, at: now()})
		_ = e.Evict(context.Background(), q.prefix, token) // it may be gone by now
	}
	return nil
}

// tokensOf lists the tokens of some of the tickets of a queue, in order.
func tokensOf(states []serializer.QueueState, queue int, which func(serializer.TicketState) bool) (tokens []uint64) {
	for _, s := range states {
		for _, t := range s.Tickets {
			if token, err := strconv.ParseUint(t.Token, 10, 64); err == nil && s.Prefix == queues[queue].prefix && which(t) {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}

// pause is a pause of a queue, as the oracle knows it.
type pause struct {
	until     int64               // as announced; distinguishes it from other pauses
	to        int64               // when it began to end
	confirmed map[engineID]uint64 // the greatest token that was inside when the engine knew of it
}

// engineID is one engine of one process.
type engineID struct {
	process int
	opened  int64
}

func (o *oracle) beginPause(queues []int, until int64) {
	for _, q := range queues {
		o.queues[q].pause = pause{until: until, to: never, confirmed: make(map[engineID]uint64)}
	}
}

// endPause notes that a pause begins to end at a moment.
func (o *oracle) endPause(queues []int, at int64) {
	for _, q := range queues {
		o.queues[q].pause.to = at
	}
}

func (q *queueOracle) confirm(r *record) {
	if r.arrived == q.pause.until {
		q.pause.confirmed[engineID{r.process, r.opened}] = r.token
	}
}

// checkPause judges an entry by the last pause of its queue.
func (o *oracle) checkPause(q *queueOracle, e *record) {
	inside, ok := q.pause.confirmed[engineID{e.process, e.opened}]
	if ok && e.at < q.pause.to && e.token > inside {
		o.blame(intrusion, q, e)
	}
}
