package main

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// takeAt locks the slot of a process that waits at a point.
func (h *harness) takeAt(r *rand.Rand, point int) *slot {
	s := h.take(r)
	if s != nil && !h.call(s, "Process.Catch", point) {
		s.Unlock()
		return nil
	}
	return s
}

// killInside kills a process that is inside, and waits until the queue must have
// recovered.
func killInside(h *harness, r *rand.Rand) bool {
	s := h.takeAt(r, inside)
	if s == nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 20))
	h.kill(s)
	time.Sleep(settleTime)
	return true
}

func killAny(h *harness, r *rand.Rand) bool { return h.kill(h.take(r)) }

func killInGuard(h *harness, r *rand.Rand) bool { return h.kill(h.takeAt(r, inGuard)) }

// kill kills a process whose slot was taken, and starts a new one in its place.
func (h *harness) kill(s *slot) bool {
	if s == nil {
		return false
	}
	defer s.Unlock()
	h.end(s)
	if err := h.start(s); err != nil {
		h.problem("%v", err)
	}
	return true
}

// stopProcess stops a process for a while, half of the time one that is inside.
func stopProcess(h *harness, r *rand.Rand) bool {
	if r.IntN(2) == 0 {
		return h.stopAt(r, inside)
	}
	s := h.take(r)
	return s != nil && h.stop(s, r, points)
}

func stopInGuard(h *harness, r *rand.Rand) bool { return h.stopAt(r, inGuard) }

func (h *harness) stopAt(r *rand.Rand, point int) bool {
	s := h.takeAt(r, point)
	return s != nil && h.stop(s, r, point)
}

// stop stops a process that may wait at a point. Then it continues the process, or
// sometimes kills it.
func (h *harness) stop(s *slot, r *rand.Rand, point int) bool {
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(milliseconds(r, 1, 1500))
	if h.procs > 1 && r.IntN(5) == 0 {
		return h.kill(s)
	}
	defer s.Unlock()
	err := s.cmd.Process.Signal(syscall.SIGCONT)
	return err == nil && (point == points || h.call(s, "Process.Release", point))
}

// onProcess makes a fault of an event in one process.
func onProcess(happens func(*harness, *slot, *rand.Rand)) func(*harness, *rand.Rand) bool {
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

func stepClock(h *harness, s *slot, r *rand.Rand) {
	steps := []time.Duration{0, -time.Hour, 24 * time.Hour}
	h.call(s, "Process.StepClock", steps[r.IntN(len(steps))])
}

func reload(h *harness, s *slot, _ *rand.Rand) { h.call(s, "Process.Reload", 0) }

func evictTickets(h *harness, r *rand.Rand) bool { return h.callAny(r, "Process.Evict", 0) }
