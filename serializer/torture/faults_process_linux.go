package main

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// take locks the slot of a running process that no fault is acting on.
func (h *harness) take(r *rand.Rand) *slot {
	for _, i := range r.Perm(len(h.slots)) {
		if s := h.slots[i]; s.TryLock() {
			if h.get(control(i, ctlUp)) != 0 {
				return s
			}
			s.Unlock()
		}
	}
	return nil
}

// takeHolder locks the slot of the process that was last inside the busiest queue: a
// holder, or the process of the next one.
func (h *harness) takeHolder(r *rand.Rand) *slot {
	if i := int(h.get(wordHolders)) - 1; i >= 0 && h.slots[i].TryLock() {
		if h.get(control(i, ctlUp)) != 0 {
			return h.slots[i]
		}
		h.slots[i].Unlock()
	}
	return h.take(r)
}

// takeUser locks the slots of all other processes of a user, except those that a fault is
// acting on.
func (h *harness) takeUser(of *slot) (taken []*slot) {
	for _, s := range h.slots {
		if s == of || !s.TryLock() {
			continue
		}
		if h.userOf(s) == h.userOf(of) {
			taken = append(taken, s)
		} else {
			s.Unlock()
		}
	}
	return taken
}

func killHolder(h *harness, r *rand.Rand) bool { return h.kill(h.takeHolder(r), false) }

// changeUser kills a process, and starts one of another user in its place. Sometimes it
// kills all processes of that user. Then only other users are left to find out who is
// dead.
func changeUser(h *harness, r *rand.Rand) bool {
	if !h.shares() {
		return false // only root can change the user
	}
	first := h.takeHolder(r)
	if first == nil {
		return false
	}
	doomed := []*slot{first}
	if r.IntN(3) == 0 {
		doomed = append(doomed, h.takeUser(first)...)
	}
	ok := true
	for _, s := range doomed {
		s.user++
		ok = h.kill(s, false) && ok
	}
	return ok
}

// killMeasured kills a process that is inside while nothing else is wrong, and waits
// until the queue must have recovered.
func killMeasured(h *harness, r *rand.Rand) bool {
	s := h.takeAt(r, ctlInside)
	if s == nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 20))
	if !h.kill(s, true) {
		return false
	}
	time.Sleep(settleTime)
	return true
}

func (h *harness) kill(s *slot, measured bool) bool {
	if s == nil {
		return false
	}
	defer s.Unlock()
	return h.killHeld(s, measured)
}

// killHeld kills a process whose slot is held.
func (h *harness) killHeld(s *slot, measured bool) bool {
	s.killed = true
	h.timeline.at("kill", s.number)
	h.oracle.killed(s.number, measured)
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	return h.replace(s)
}

// replace starts a new process in place of one that was killed.
func (h *harness) replace(s *slot) bool {
	<-s.exited
	h.oracle.catchUp()
	h.settle(s, true)
	if err := h.start(s); err != nil {
		h.problem("%v", err)
		return false
	}
	return true
}

// catchPatience is how long a fault waits for a process to reach a point.
const catchPatience = 500 * time.Millisecond

// catch makes a process stop at a point. It reports whether the process is there.
func (h *harness) catch(s *slot, point int) bool {
	word := control(s.index, point)
	h.set(word, holdNext)
	for patience := time.Now().Add(catchPatience); h.get(word) != holdBegun; time.Sleep(time.Millisecond) {
		if time.Now().After(patience) && h.swap(word, holdNext, holdNot) {
			return false
		}
	}
	return true
}

// takeAt locks the slot of a process, and makes the process stop at a point.
func (h *harness) takeAt(r *rand.Rand, point int) *slot {
	s := h.take(r)
	if s != nil && !h.catch(s, point) {
		s.Unlock()
		return nil
	}
	return s
}

func killInGuard(h *harness, r *rand.Rand) bool {
	return h.kill(h.takeAt(r, ctlGuard), false)
}

func stopProcess(h *harness, r *rand.Rand) bool {
	s := h.take(r)
	if r.IntN(2) == 0 && s != nil {
		s.Unlock()
		s = h.takeHolder(r)
	}
	if s == nil {
		return false
	}
	return h.stopFor(s, r, "stop", 1500)
}

// stopFor stops a process for up to so many milliseconds. Then it continues the process,
// or sometimes kills it.
func (h *harness) stopFor(s *slot, r *rand.Rand, fault string, atMost int) bool {
	defer s.Unlock()
	defer h.timeline.begin(fault, s.number)()
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	h.set(control(s.index, ctlGuard), holdNot) // in case it has stopped there
	time.Sleep(milliseconds(r, 1, atMost))
	if h.has("kill") && r.IntN(5) == 0 {
		return h.killHeld(s, false)
	}
	return s.cmd.Process.Signal(syscall.SIGCONT) == nil
}

func stopInGuard(h *harness, r *rand.Rand) bool {
	s := h.takeAt(r, ctlGuard)
	if s == nil {
		return false
	}
	return h.stopFor(s, r, "stopguard", 800)
}

// onProcess makes a fault of an event in one process.
func onProcess(happens func(*harness, *slot, *rand.Rand)) throw {
	return func(h *harness, r *rand.Rand) bool {
		s := h.take(r)
		if s == nil {
			return false
		}
		defer s.Unlock()
		happens(h, s, r)
		return true
	}
}

func reload(h *harness, s *slot, _ *rand.Rand) {
	h.timeline.at("reload", s.number)
	h.add(control(s.index, ctlReloads), 1)
}

func stepClock(h *harness, s *slot, r *rand.Rand) {
	steps := []time.Duration{0, -time.Hour, 24 * time.Hour}
	h.timeline.at("clock", s.number)
	h.set(control(s.index, ctlClock), uint64(steps[r.IntN(len(steps))]))
}

func useDescriptors(h *harness, s *slot, r *rand.Rand) {
	defer h.timeline.begin("descriptors", s.number)()
	h.set(control(s.index, ctlFileLimit), uint64(1+r.IntN(4)))
	time.Sleep(milliseconds(r, 5, 50))
	if h.has("reload") && r.IntN(2) == 0 {
		h.add(control(s.index, ctlReloads), 1)
	}
	time.Sleep(milliseconds(r, 1, 500))
	h.set(control(s.index, ctlFileLimit), 0)
}
