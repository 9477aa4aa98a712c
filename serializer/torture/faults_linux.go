package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fault is something that goes wrong.
type fault struct {
	name   string
	weight int
	throw  func(h *harness, r *rand.Rand) bool // reports whether it happened
	needs  resources                           // for itself: other faults that need them do not happen
	calm   bool                                // happens only while no other one is in progress
}

// resources is a set of what all processes share.
type resources uint8

const (
	directory resources = 1 << iota
	pauses
)

var faults = []fault{
	{name: "kill", weight: 5, throw: toProcess(kill, inside), calm: true}, // the recovery is measured
	{name: "killany", weight: 5, throw: toProcess(kill, anywhere)},
	{name: "killguard", weight: 3, throw: toProcess(kill, inGuard)},
	{name: "stop", weight: 6, throw: toProcess(stop, anywhere, inside)},
	{name: "stopguard", weight: 2, throw: toProcess(stop, inGuard)},
	{name: "reload", weight: 10, throw: toProcess(calls("Process.Reload"), anywhere)},
	{name: "clock", weight: 5, throw: toProcess(calls("Process.StepClock"), anywhere)},
	{name: "evict", weight: 6, throw: evictTickets},
	{name: "pause", weight: 6, throw: pauseQueue, needs: pauses},
	{name: "replace", weight: 2, throw: replaceDirectory, needs: directory | pauses}, // which disappear with it
	{name: "away", weight: 2, throw: takeAway, needs: directory},
	{name: "files", weight: 8, throw: removeFiles, needs: directory},
	{name: "owners", weight: 1, throw: removeOwnerFiles, needs: directory},
	{name: "permissions", weight: 2, throw: takePermissions, needs: directory},
	{name: "disk", weight: 4, throw: fillDisk, needs: directory},
}

// directoryReplaced is a moment that the oracle has to know exactly.
const directoryReplaced = "directory replaced"

func names(faults []fault) (names []string) {
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

// chooseFaults returns all faults, none, or those with some names.
func chooseFaults(text string) (chosen []fault, err error) {
	for name := range strings.SplitSeq(text, ",") {
		before := len(chosen)
		for _, f := range faults {
			if name == "all" || name == f.name {
				chosen = append(chosen, f)
			}
		}
		if len(chosen) == before && name != "none" {
			return nil, fmt.Errorf("unknown fault %q", name)
		}
	}
	return chosen, nil
}

// throwFaults throws faults until ctx is done, and waits until the last one has ended.
func (h *harness) throwFaults(ctx context.Context, faults []fault) {
	var weighted []fault
	for _, f := range faults {
		weighted = append(weighted, slices.Repeat([]fault{f}, f.weight)...)
	}
	random := rand.New(rand.NewPCG(h.Seed, 0))
	var group sync.WaitGroup
	defer group.Wait()
	for sleep(ctx, time.Duration(random.ExpFloat64()*float64(h.pace))) {
		if len(weighted) == 0 {
			continue
		}
		f := weighted[random.IntN(len(weighted))]
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		if !f.calm {
			group.Go(func() { h.throw(f, r) })
		} else if h.calmDown(ctx) {
			h.throw(f, r)
			sleep(ctx, settleTime)
		}
	}
}

// throw throws a fault, unless another one that needs the same is in progress.
func (h *harness) throw(f fault, r *rand.Rand) {
	s, free := &span{f.name, f.needs, now(), never}, false
	h.tell(func() {
		free = !slices.ContainsFunc(h.spans, func(other *span) bool { return other.to == never && other.needs&f.needs != 0 })
		if free {
			h.spans = append(h.spans, s)
		}
	})
	if !free {
		return
	}
	happened := f.throw(h, r)
	h.tell(func() {
		if s.to = now(); happened {
			h.thrown[f.name]++
		}
	})
}

// calmDown waits until no fault is in progress.
func (h *harness) calmDown(ctx context.Context) bool {
	for busy := true; busy && sleep(ctx, 5*time.Millisecond); {
		h.tell(func() { busy = h.busy(now()-int64(settleTime), never, "") })
	}
	return ctx.Err() == nil
}

// sleep sleeps for a while, and reports whether ctx is still not done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func milliseconds(r *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+r.IntN(to-from)) * time.Millisecond
}

// toProcess makes a fault of what happens to a process, which is caught at one of some points, chosen at random.
func toProcess(happens func(*harness, *slot, *rand.Rand), points ...int) func(*harness, *rand.Rand) bool {
	return func(h *harness, r *rand.Rand) bool {
		s, point := h.take(r), points[r.IntN(len(points))]
		if s == nil {
			return false
		}
		defer s.Unlock()
		if point != anywhere && !h.call(s, "Process.Catch", point) {
			return false
		}
		happens(h, s, r)
		return true
	}
}

// kill kills a process, and starts a new one in its place.
func kill(h *harness, s *slot, r *rand.Rand) {
	time.Sleep(milliseconds(r, 1, 20)) // in the meantime, others come to wait for it
	h.end(s)
	if err := h.start(s); err != nil {
		h.problem("%v", err)
	}
}

// stop stops a process for a while. Then it continues the process, or sometimes kills it.
func stop(h *harness, s *slot, r *rand.Rand) {
	process := s.child.Load().cmd.Process
	_ = process.Signal(syscall.SIGSTOP)
	time.Sleep(milliseconds(r, 1, 1500))
	if h.procs > 1 && r.IntN(5) == 0 {
		kill(h, s, r)
		return
	}
	_ = process.Signal(syscall.SIGCONT)
}

// calls has a process do something by a random number.
func calls(method string) func(*harness, *slot, *rand.Rand) {
	return func(h *harness, s *slot, r *rand.Rand) { h.call(s, method, r.Uint64()) }
}

func evictTickets(h *harness, r *rand.Rand) bool { return h.callAny(r, "Process.Evict", r.Uint64()) }

// The points at which a process can be caught, so that it can be stopped or killed exactly there.
const (
	inGuard  = iota // while it issues tickets
	inside          // the first queue
	anywhere        // it is not caught
)

const (
	catchPatience = 500 * time.Millisecond // how long a fault waits for a process to reach a point
	caughtTime    = 100 * time.Millisecond // how long the process stays there then; a fault takes less
)

// Catch returns when the process stays at a point for a while.
func (p *process) Catch(point int, _ *bool) error {
	select {
	case p.catching[point] <- struct{}{}:
		return nil
	case <-time.After(catchPatience):
		return errors.New("it did not get there")
	}
}

// pass stays at a point for a while if the harness wants that.
func (p *process) pass(point int) {
	select {
	case <-p.catching[point]:
		time.Sleep(caughtTime)
	default:
	}
}
