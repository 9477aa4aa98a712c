package main

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"time"
)

// toProcess makes a fault of what happens to a process. The process is held at one of some
// points, chosen at random, and continues unless it was killed.
func toProcess(happens func(*harness, *slot, *rand.Rand) (killed bool), points ...int) func(*harness, *rand.Rand) bool {
	return func(h *harness, r *rand.Rand) bool {
		s, point := h.take(r), points[r.IntN(len(points))]
		if s == nil {
			return false
		}
		defer s.Unlock()
		if point != anywhere && !h.call(s, "Process.Catch", point) {
			return false
		}
		killed := happens(h, s, r)
		return killed || point == anywhere || h.call(s, "Process.Release", point)
	}
}

// kill kills a process, and starts a new one in its place.
func kill(h *harness, s *slot, r *rand.Rand) (killed bool) {
	time.Sleep(milliseconds(r, 1, 20)) // in the meantime, others come to wait for it
	h.end(s)
	if err := h.start(s); err != nil {
		h.problem("%v", err)
	}
	return true
}

// stop stops a process for a while. Then it continues the process, or sometimes kills it.
func stop(h *harness, s *slot, r *rand.Rand) (killed bool) {
	process := s.child.Load().cmd.Process
	_ = process.Signal(syscall.SIGSTOP)
	time.Sleep(milliseconds(r, 1, 1500))
	if h.procs > 1 && r.IntN(5) == 0 {
		return kill(h, s, r)
	}
	_ = process.Signal(syscall.SIGCONT)
	return false
}

func stepClock(h *harness, s *slot, r *rand.Rand) (killed bool) {
	steps := []time.Duration{0, -time.Hour, 24 * time.Hour}
	h.call(s, "Process.StepClock", steps[r.IntN(len(steps))])
	return false
}

func reload(h *harness, s *slot, _ *rand.Rand) (killed bool) {
	h.call(s, "Process.Reload", 0)
	return false
}

func evictTickets(h *harness, r *rand.Rand) bool { return h.callAny(r, "Process.Evict", 0) }

// hold makes a process wait when it next gets to a certain point. So it can be stopped or
// killed exactly there.
type hold struct{ caught, released chan struct{} }

// The points at which a process can be held.
const (
	inGuard  = iota // while it issues tickets
	inside          // the first queue
	anywhere        // it is not held
)

// hold waits here, if the harness wants that, until it releases the process.
func (p *process) hold(point int) {
	select {
	case p.holds[point].caught <- struct{}{}:
		<-p.holds[point].released
	default:
	}
}

// catchPatience is how long a fault waits for a process to reach a point.
const catchPatience = 500 * time.Millisecond

// Catch returns when the process waits at a point.
func (p *process) Catch(point int, _ *bool) error {
	select {
	case <-p.holds[point].caught:
		return nil
	case <-time.After(catchPatience):
		return errors.New("it did not get there")
	}
}

// Release lets the process continue.
func (p *process) Release(point int, _ *bool) error {
	p.holds[point].released <- struct{}{}
	return nil
}
