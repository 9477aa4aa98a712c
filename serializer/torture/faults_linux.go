package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// fault is something that goes wrong.
type fault struct {
	name   string
	help   string
	weight int
	throw  func(h *harness, r *rand.Rand) bool // reports whether it happened
	calm   bool                                // only while no other one is in progress
}

var faults = []fault{
	{name: "kill", weight: 5, throw: killInside, calm: true,
		help: "kill -9 of a process that is inside, while no other fault is in progress: the recovery is measured"},
	{name: "killany", weight: 5, throw: killAny, help: "kill -9 of a process"},
	{name: "killguard", weight: 3, throw: killInGuard, help: "kill -9 of a process while it issues tickets"},
	{name: "stop", weight: 6, throw: stopProcess, help: "SIGSTOP of a process, and SIGCONT or kill -9 after a while"},
	{name: "stopguard", weight: 2, throw: stopInGuard, help: "the same while it issues tickets"},
	{name: "reload", weight: 10, throw: onProcess(reload), help: "a new engine in the same process, and the old one closed"},
	{name: "pause", weight: 6, throw: pauseQueue, help: "a queue, or all whose names begin alike, paused for a while"},
	{name: "evict", weight: 6, throw: evictTickets, help: "a ticket of each queue evicted"},
	{name: "clock", weight: 5, throw: onProcess(stepClock),
		help: "a step of a process's clock: an hour back, a day ahead, or correct again"},
	{name: "away", weight: 2, throw: onDisk(takeAway), help: "the directory renamed away, and put back"},
	{name: "replace", weight: 2, throw: onDisk(replaceDirectory),
		help: "the directory renamed away for good or removed, and another in its place"},
	{name: "guard", weight: 1, throw: onDisk(spoilGuard), help: "the guard file removed, emptied or filled with nonsense"},
	{name: "files", weight: 8, throw: onDisk(removeFiles), help: "lock files of waiters and holders removed"},
	{name: "owners", weight: 1, throw: onDisk(removeOwnerFiles), help: "the names of the owner files removed"},
	{name: "words", weight: 3, throw: onDisk(damageWords), help: "owner files truncated, or words in them overwritten"},
	{name: "permissions", weight: 2, throw: onDisk(takePermissions), help: "the directory's permissions taken away, and restored"},
	{name: "disk", weight: 4, throw: onDisk(fillDisk), help: "no inodes or no space left, or a page or two (as root: on a tmpfs of its own)"},
}

// Names of moments that the oracle has to know exactly.
const (
	directoryReplaced = "directory replaced"
	numberForgotten   = "number forgotten"
)

func faultHelp() string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "  %-12s %s\n", f.name, f.help)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// chooseFaults parses the value of -faults.
func chooseFaults(text string) (chosen []fault, err error) {
	switch text {
	case "all":
		return faults, nil
	case "none":
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown fault %q", name)
		}
		chosen = append(chosen, faults[i])
	}
	return chosen, nil
}

// throwFaults throws faults until ctx is done, and waits until the last one has ended.
func (h *harness) throwFaults(ctx context.Context) {
	var weighted []fault
	for _, f := range h.faults {
		weighted = append(weighted, slices.Repeat([]fault{f}, f.weight)...)
	}
	random := rand.New(rand.NewPCG(h.seed, 0))
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
		}
	}
}

func (h *harness) throw(f fault, r *rand.Rand) {
	defer h.timeline.begin(f.name)()
	if f.throw(h, r) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.thrown[f.name]++
	}
}

// calmDown waits until no fault is in progress.
func (h *harness) calmDown(ctx context.Context) bool {
	for h.timeline.busy(now()-int64(settleTime), never, "") {
		if !sleep(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return true
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
