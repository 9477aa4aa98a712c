package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fault is something that goes wrong.
type fault struct {
	name   string
	help   string
	weight int
	throw  throw // nil if the processes do it themselves
}

// throw causes a fault. It reports whether it did.
type throw func(h *harness, r *rand.Rand) bool

var faults []fault

func init() {
	faults = []fault{
		{"kill", "kill -9 of a process, mostly of one that is inside, and a new one in its place", 10, killHolder},
		{"killguard", "kill -9 of a process while it issues tickets", 3, killInGuard},
		{"stop", "SIGSTOP of a process, and SIGCONT after a while", 6, stopProcess},
		{"stopguard", "SIGSTOP of a process while it issues tickets, and SIGCONT after a while", 2, stopInGuard},
		{"users", "kill -9 of a process, and one of another user in its place; all users share a group (as root)", 4, changeUser},
		{"reload", "a new engine in the same process, and the old one closed", 10, onProcess(reload)},
		{"cancel", "callers that give up while they wait", 0, nil},
		{"timeout", "callers that wait only for milliseconds", 0, nil},
		{"supersede", "more queues, in which arrivals supersede waiters (drop_oldest)", 0, nil},
		{"pause", "a queue or a group of queues paused for a while, by a process or from outside", 6, pauseQueue},
		{"clock", "a step of a process's clock: an hour back, a day ahead, or correct again", 5, onProcess(stepClock)},
		{"away", "the directory renamed away, and put back", 2, onDisk(takeAway)},
		{"replace", "the directory renamed away for good, and a new one in its place", 1, onDisk(replaceDirectory)},
		{"links", "the directory reached through a link, which is moved to another directory and back", 2, onDisk(moveLink)},
		{"guard", "the guard file removed, emptied or filled with nonsense", 1, onDisk(spoilGuard)},
		{"files", "lock files of waiters and holders removed", 8, removeFiles},
		{"owners", "the names of the owner files removed", 1, removeOwnerFiles},
		{"permissions", "the directory's permissions taken away, and restored", 2, onDisk(takePermissions)},
		{"inodes", "no inodes left (as root: on a tmpfs of its own)", 2, onDisk(useInodes)},
		{"bytes", "no space left (as root: on a tmpfs of its own)", 1, onDisk(useBytes)},
		{"descriptors", "no file descriptors left for a process", 4, onProcess(useDescriptors)},
	}
	for _, f := range faults {
		allFaults = append(allFaults, f.name)
	}
}

var allFaults []string

func faultHelp() string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "  %-12s %s\n", f.name, f.help)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// chooseFaults parses the value of -faults.
func chooseFaults(text string) (chosen []string, err error) {
	for i, name := range strings.Split(text, ",") {
		without, minus := strings.CutPrefix(name, "-")
		switch {
		case name == "none":
			chosen = nil
		case name == "all", minus && i == 0:
			chosen = slices.Clone(allFaults)
		}
		if name == "all" || name == "none" {
			continue
		}
		if !slices.Contains(allFaults, without) {
			return nil, fmt.Errorf("unknown fault %q; there are %s", without, strings.Join(allFaults, ", "))
		}
		chosen = slices.DeleteFunc(chosen, func(c string) bool { return c == without })
		if !minus {
			chosen = append(chosen, name)
		}
	}
	return chosen, nil
}

// activity counts the faults in progress.
type activity struct {
	on    atomic.Int64
	since atomic.Int64 // when the last one ended
	disk  sync.Mutex   // held by a fault of the shared directory
}

// settleTime is how long after a fault the queue counts as disturbed.
const settleTime = 300 * time.Millisecond

// throwFaults throws faults until ctx is done, and waits until the last one has ended.
func (h *harness) throwFaults(ctx context.Context) {
	total := 0
	var chosen []fault
	for _, f := range faults {
		if f.throw != nil && h.has(f.name) {
			chosen = append(chosen, f)
			total += f.weight
		}
	}
	if total == 0 {
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	for h.pause(ctx) {
		n := h.rand.IntN(total)
		r := rand.New(rand.NewPCG(h.rand.Uint64(), 0))
		for _, f := range chosen {
			if n -= f.weight; n >= 0 {
				continue
			}
			if f.name == "kill" && r.IntN(3) > 0 && h.calmDown(ctx) {
				h.throw(f, func() bool { return killMeasured(h, r) })
				break
			}
			h.active.on.Add(1)
			group.Go(func() {
				if f.name != "pause" { // pauseQueue records that itself
					defer h.oracle.moment(&h.oracle.troubled)()
				}
				h.throw(f, func() bool { return f.throw(h, r) })
				h.active.since.Store(now())
				h.active.on.Add(-1)
			})
			break
		}
	}
}

func (h *harness) throw(f fault, do func() bool) {
	if do() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.faulted[f.name]++
	}
}

func (h *harness) faultsThrown() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.faulted)) {
		fmt.Fprintf(&b, " %s %d", name, h.faulted[name])
	}
	return strings.TrimSpace(b.String())
}

// pause waits until it is time for the next fault.
func (h *harness) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(h.rand.ExpFloat64() * float64(h.pace))):
		return true
	}
}

// calmDown waits until no fault is in progress.
func (h *harness) calmDown(ctx context.Context) bool {
	for h.active.on.Load() > 0 || since(h.active.since.Load()) < settleTime {
		if ctx.Err() != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

func milliseconds(r *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+r.IntN(to-from)) * time.Millisecond
}
