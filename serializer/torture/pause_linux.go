package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The fault "pause" pauses queues. During a pause, the harness asks each process which of
// its tickets are inside. From then on until the pause ends, the oracle accepts no entry
// with a greater number.

// pauseWord identifies a pause and its name: how many pauses came before it, and the
// number of the name. It is never 0.
func pauseWord(pause, name int) uint64 { return uint64(pause)<<8 | uint64(name) }

func pauseOf(word uint64) (pause, name int) { return int(word >> 8), int(word & 0xff) }

// pauseQueue pauses a queue or a group, from outside or through a process, until it is
// resumed or the pause ends by itself.
func pauseQueue(h *harness, r *rand.Rand) bool {
	if !h.active.disk.TryLock() { // a pause disappears with its directory
		return false
	}
	defer h.active.disk.Unlock()
	names, queues := pausable(h.queues())
	name := r.IntN(len(names))
	p := pausing{harness: h, rand: r, name: names[name], length: milliseconds(r, 400, 2500)}
	p.untilResumed = r.IntN(2) == 0
	defer h.timeline.begin("pause", 0)()
	defer h.oracle.moment(&h.oracle.troubled)()
	p.span = h.oracle.beginPause(queues[p.name])
	p.word = pauseWord(p.span.number, name)
	until := time.Now().Add(p.length)
	end := now() + int64(p.length)
	if err := p.pause(until); err != nil {
		h.oracle.endPause(p.span, now(), false)
		return h.ending.Load() || !h.unexpected(err)
	}
	if !p.untilResumed {
		h.oracle.endPause(p.span, end-int64(time.Millisecond), false) // the clocks drift
	}
	h.oracle.paused(p.span)
	time.Sleep(milliseconds(r, 0, 400)) // a process must notice the pause even if it is not asked
	h.set(wordPause, p.word)
	p.lookOn(end)
	h.set(wordPause, 0)
	if !p.untilResumed && now() > end {
		return true
	}
	return !h.unexpected(p.resume())
}

// pausing is one pause that the harness makes.
type pausing struct {
	*harness
	rand         *rand.Rand
	name         string
	length       time.Duration
	untilResumed bool
	word         uint64
	span         *pauseSpan
}

// pause pauses the queue. A process with that order may be killed before it obeys: that
// is not an error.
func (p *pausing) pause(until time.Time) error {
	if p.rand.IntN(2) == 0 && !p.untilResumed { // a stopped process could make a pause without an end much later
		p.order(uint64(until.UnixNano()))
		return nil
	}
	if p.untilResumed {
		until = time.Time{}
	}
	return serializer.PauseQueue(p.locks, p.name, until)
}

func (p *pausing) resume() error {
	p.oracle.endPause(p.span, now(), true)
	if p.rand.IntN(2) == 0 {
		p.order(0)
	}
	return serializer.ResumeQueue(p.locks, p.name)
}

// orderPatience is how long the harness waits for a process that may be stopped.
const orderPatience = 2 * time.Second

// order orders a process to pause the queue, or to resume it if the end is 0.
func (p *pausing) order(end uint64) {
	s := p.take(p.rand)
	if s == nil {
		return
	}
	s.Unlock() // so that it can be killed in the meantime
	p.set(control(s.index, ctlOrderEnd), end)
	p.set(control(s.index, ctlOrder), p.word)
	for patience := time.Now().Add(orderPatience); p.get(control(s.index, ctlOrderDone)) != p.word && time.Now().Before(patience); {
		time.Sleep(time.Millisecond)
	}
	p.set(control(s.index, ctlOrder), 0)
}

// lookOn waits for the end of the pause. Every running process must notice the pause.
func (p *pausing) lookOn(end int64) {
	for now() < end && !p.ending.Load() {
		time.Sleep(time.Millisecond)
	}
	if !p.untilResumed {
		return
	}
	var deaf string
	for patience := time.Now().Add(graceTime); time.Now().Before(patience) && !p.ending.Load(); time.Sleep(time.Millisecond) {
		if deaf = p.deaf(); deaf == "" {
			return
		}
	}
	if !p.ending.Load() {
		p.problem("lost: %s does not know after %v that %q is paused", deaf, graceTime, p.name)
	}
}

// deaf returns a process that does not know of the pause, or "".
func (p *pausing) deaf() string {
	for i := range p.slots { // whose processes other faults may replace meanwhile
		if p.get(control(i, ctlUp)) != 0 && p.get(control(i, ctlKnows)) != p.word {
			return fmt.Sprintf("the process in slot %d", i)
		}
	}
	return ""
}

// unexpected reports an error that no other fault explains.
func (h *harness) unexpected(err error) bool {
	if err == nil || len(h.faults) > 1 && errors.Is(err, serializer.ErrStorage) {
		return false
	}
	h.problem("%v", err)
	return true
}

// obeyPauses carries out the orders to pause and resume, and confirms the pauses that the
// process knows.
func (p *process) obeyPauses(done <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if word := p.get(control(p.Slot, ctlOrder)); word != 0 && word != p.get(control(p.Slot, ctlOrderDone)) {
			p.pauseOrResume(word, p.get(control(p.Slot, ctlOrderEnd)))
			p.set(control(p.Slot, ctlOrderDone), word)
		}
		if word := p.get(wordPause); word != 0 {
			p.confirmPause(word)
		}
	}
}

func (p *process) pauseOrResume(word, end uint64) {
	pauser, ok := p.engine.Load().Engine.(serializer.Pauser)
	if !ok {
		return
	}
	_, n := pauseOf(word)
	names, _ := pausable(p.queues)
	if end == 0 {
		_ = pauser.Resume(context.Background(), names[n]) // the harness also resumes it
	} else {
		_ = pauser.Pause(context.Background(), names[n], time.Unix(0, int64(end)))
	}
}

// confirmPause records which tokens of the newest engine are inside, if the engine knows
// of the pause and has not recorded that yet.
func (p *process) confirmPause(word uint64) {
	e := p.engine.Load()
	if e.confirmed == word {
		return
	}
	pause, n := pauseOf(word)
	names, of := pausable(p.queues)
	states, err := e.Queues(context.Background())
	if err != nil || !slices.ContainsFunc(states, func(s serializer.QueueState) bool { return s.Prefix == names[n] && s.PausedUntil != nil }) {
		return
	}
	for _, q := range of[names[n]] {
		p.note(record{who: who{process: p.Number}, knows: true, queue: q, engine: e.number,
			token: greatestInside(states, p.queues[q].prefix), arrived: int64(pause), at: now()})
	}
	e.confirmed = word
	if e == p.engine.Load() {
		p.set(control(p.Slot, ctlKnows), word)
	}
}

// greatestInside is the greatest number of a local ticket that is inside a queue.
func greatestInside(states []serializer.QueueState, queue string) (greatest uint64) {
	for _, s := range states {
		if s.Prefix != queue {
			continue
		}
		for _, t := range s.Tickets {
			if token, err := strconv.ParseUint(t.Token, 10, 64); err == nil && t.Requester != nil && t.State == serializer.StateInside {
				greatest = max(greatest, token)
			}
		}
	}
	return greatest
}
