package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"golang.org/x/sys/unix"
)

// fault is something that goes wrong.
type fault struct {
	name   string
	help   string
	weight int
	throw  func(h *harness, r *rand.Rand) bool // nil where the processes do it themselves
}

var faults []fault

func init() {
	faults = []fault{
		{"kill", "kill -9 of a process, mostly of one that is inside, and a new one in its place", 10, killHolder},
		{"killguard", "kill -9 of a process in the middle of giving out tickets", 3, killInGuard},
		{"stop", "SIGSTOP of a process, and SIGCONT after a while", 6, stopProcess},
		{"stopguard", "SIGSTOP of a process in the middle of giving out tickets, and SIGCONT", 2, stopInGuard},
		{"users", "kill -9 of a process, and one of another user in its place; all share a group (as root)", 4, changeUser},
		{"reload", "another engine in the same process, and the old one closed", 10, reload},
		{"cancel", "callers who go away while they wait", 0, nil},
		{"timeout", "callers who wait for milliseconds only", 0, nil},
		{"supersede", "more queues, in which callers supersede those who wait (drop_oldest)", 0, nil},
		{"pause", "a queue paused for a while, or a group of them; by a process or from outside", 6, pauseQueue},
		{"clock", "the clock of a process steps: an hour back, a day ahead, or right again", 5, stepClock},
		{"away", "the directory renamed away, and put back", 2, takeAway},
		{"replace", "the directory renamed away for good, and a new one in its place", 1, replaceDirectory},
		{"links", "the directory reached through a link, which is moved to another directory and back", 2, moveLink},
		{"guard", "the guard file removed, emptied or filled with nonsense", 1, spoilGuard},
		{"files", "lock files removed from under who waits and who is inside", 8, removeFiles},
		{"owners", "the names of the owner files removed", 1, removeOwnerFiles},
		{"permissions", "the directory's permissions taken away, and given back", 2, takePermissions},
		{"inodes", "no inodes left (as root: on a tmpfs of its own)", 2, useInodes},
		{"bytes", "no space left (as root: on a tmpfs of its own)", 1, useBytes},
		{"descriptors", "no file descriptors left to a process", 4, useDescriptors},
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

// chooseFaults reads the value of -faults.
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

// activity counts the faults that are on.
type activity struct {
	on    atomic.Int64
	since atomic.Int64 // when the last one ended
	disk  sync.Mutex   // of the faults that concern all, one at a time
}

// settleTime is after a fault until the queue counts as undisturbed.
const settleTime = 300 * time.Millisecond

// throwFaults throws faults until ctx is done, and waits for the last to end.
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
				if f.name != "pause" { // which tells by itself when it has begun
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

// pause waits for the time of the next fault.
func (h *harness) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(h.rand.ExpFloat64() * float64(h.pace))):
		return true
	}
}

// calmDown waits until no fault is on.
func (h *harness) calmDown(ctx context.Context) bool {
	for h.active.on.Load() > 0 || since(h.active.since.Load()) < settleTime {
		if ctx.Err() != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// take locks the slot of some process that runs and that no fault is at work on.
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

// takeHolder locks the slot of the process that was last inside the busiest
// queue, so it is inside or the next waiter of one.
func (h *harness) takeHolder(r *rand.Rand) *slot {
	if i := int(h.get(wordHolders)) - 1; i >= 0 && h.slots[i].TryLock() {
		if h.get(control(i, ctlUp)) != 0 {
			return h.slots[i]
		}
		h.slots[i].Unlock()
	}
	return h.take(r)
}

// takeUser locks the slots of all other processes of a user, as far as no fault is
// at work on them.
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

// changeUser makes the next user continue where a process was killed, and sometimes
// where all of its user were: then only others are left to find out who is dead.
func changeUser(h *harness, r *rand.Rand) bool {
	if !h.shares() {
		return false // nobody else can become another user
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

// killMeasured kills a process that is inside while nothing else is wrong, and
// waits until the queue must have recovered.
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
	return h.killLocked(s, measured)
}

func (h *harness) killLocked(s *slot, measured bool) bool {
	s.killed = true
	h.timeline.at("kill", s.number)
	h.oracle.killed(s.number, measured)
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	return h.replace(s)
}

// replace starts a new process in the place of one that was killed.
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

// catchPatience is how long a fault waits for a process to come to some point.
const catchPatience = 500 * time.Millisecond

// catch makes a process stay at a point. It reports whether it is there.
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

// takeAt locks the slot of a process, and makes the process stay at a point.
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
	defer s.Unlock()
	defer h.timeline.begin("stop", s.number)()
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(milliseconds(r, 1, 1500))
	return h.wakeOrKill(s, r)
}

// wakeOrKill ends a stop, sometimes for good.
func (h *harness) wakeOrKill(s *slot, r *rand.Rand) bool {
	if h.has("kill") && r.IntN(5) == 0 {
		return h.killLocked(s, false)
	}
	return s.cmd.Process.Signal(syscall.SIGCONT) == nil
}

func stopInGuard(h *harness, r *rand.Rand) bool {
	s := h.takeAt(r, ctlGuard)
	if s == nil {
		return false
	}
	defer s.Unlock()
	defer h.timeline.begin("stopguard", s.number)()
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	h.set(control(s.index, ctlGuard), holdNot)
	time.Sleep(milliseconds(r, 1, 800))
	return h.wakeOrKill(s, r)
}

func reload(h *harness, r *rand.Rand) bool {
	s := h.take(r)
	if s == nil {
		return false
	}
	defer s.Unlock()
	h.timeline.at("reload", s.number)
	h.add(control(s.index, ctlReloads), 1)
	return true
}

func stepClock(h *harness, r *rand.Rand) bool {
	s := h.take(r)
	if s == nil {
		return false
	}
	defer s.Unlock()
	steps := []time.Duration{0, -time.Hour, 24 * time.Hour}
	h.timeline.at("clock", s.number)
	h.set(control(s.index, ctlClock), uint64(steps[r.IntN(len(steps))]))
	return true
}

// takeAway renames the directory away for a while. A link to nowhere stands in its
// place meanwhile, so that nobody, not even root, can make another.
func takeAway(h *harness, r *rand.Rand) bool {
	if !h.active.disk.TryLock() {
		return false
	}
	defer h.active.disk.Unlock()
	away := h.locks + ".away"
	if os.Symlink("nowhere", away) != nil {
		return false
	}
	defer func() { _ = os.Remove(away) }()
	defer h.timeline.begin("away", 0)()
	if exchange(h.locks, away) != nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 400))
	if err := exchange(h.locks, away); err != nil {
		h.problem("putting the directory back: %v", err)
	}
	return true
}

// exchange makes two files change places, in one moment.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// moveLink moves the link that is the path of the lock directory to the other
// directory, once everybody knows the present one. Everything in the other one is as
// it was left: by those who were killed there, too.
func moveLink(h *harness, _ *rand.Rand) bool {
	if !h.active.disk.TryLock() {
		return false
	}
	defer h.active.disk.Unlock()
	if !h.waitUntilKnown() {
		return false
	}
	defer h.timeline.begin("links", 0)()
	defer h.oracle.moment(&h.oracle.replaced)()
	return exchange(h.locks, h.other()) == nil
}

// replaceDirectory puts a new directory in the place of the old one, once
// everybody knows the present one.
func replaceDirectory(h *harness, r *rand.Rand) bool {
	if !h.active.disk.TryLock() {
		return false
	}
	defer h.active.disk.Unlock()
	if !h.waitUntilKnown() {
		return false
	}
	defer h.timeline.begin("replace", 0)()
	old := fmt.Sprintf("%s.%d", h.locks, now())
	if h.shares() || r.IntN(2) == 0 { // what one user makes, the others could not use
		return h.replaceAtOnce(old)
	}
	end := h.oracle.moment(&h.oracle.replaced)
	err := os.Rename(h.locks, old)
	end()
	if err != nil {
		return false
	}
	if r.IntN(2) == 0 {
		time.Sleep(milliseconds(r, 1, 200)) // else a process makes it
	}
	if err := h.makeLocks(h.locks); err != nil {
		h.problem("%v", err)
	}
	return true
}

// replaceAtOnce leaves no moment in which there is no directory.
func (h *harness) replaceAtOnce(old string) bool {
	if err := h.makeLocks(old); err != nil {
		h.problem("%v", err)
		return false
	}
	defer h.oracle.moment(&h.oracle.replaced)()
	return exchange(h.locks, old) == nil
}

// waitUntilKnown waits until every process has worked in the directory since
// the last time it was replaced.
func (h *harness) waitUntilKnown() bool {
	h.oracle.mu.Lock()
	var last int64
	if n := len(h.oracle.replaced); n > 0 {
		last = h.oracle.replaced[n-1].to
	}
	h.oracle.mu.Unlock()
	for i := 0; i < 500 && !h.ending.Load(); i++ {
		known := true
		for i := range h.slots {
			known = known && int64(h.get(control(i, ctlLastEntry))) > last
		}
		if known {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// spoilGuard damages the guard file, or takes it away.
func spoilGuard(h *harness, r *rand.Rand) bool {
	if !h.active.disk.TryLock() {
		return false
	}
	defer h.active.disk.Unlock()
	if !h.waitUntilKnown() {
		return false
	}
	guard := filepath.Join(h.locks, ".orderly-guard")
	defer h.timeline.begin("guard", 0)()
	defer h.oracle.moment(&h.oracle.forgotten)()
	var err error
	switch r.IntN(3) {
	case 0:
		err = os.Remove(guard)
	case 1:
		err = os.Truncate(guard, 0)
	case 2:
		err = os.WriteFile(guard, []byte("nonsense, and more of it\n"), 0)
	}
	return err == nil
}

// removeFiles removes the first lock files of some queues, over and over for a while:
// those of who is inside, and sometimes of who waits.
func removeFiles(h *harness, r *rand.Rand) bool {
	defer h.timeline.begin("files", 0)()
	removed := 0
	for range 1 + r.IntN(20) {
		tickets := h.tickets()
		for _, q := range slices.Sorted(maps.Keys(tickets)) {
			if r.IntN(2) == 0 {
				continue
			}
			names := tickets[q]
			if r.IntN(4) > 0 {
				names = names[:1]
			}
			for _, name := range names[:min(len(names), 1+r.IntN(5))] {
				if os.Remove(filepath.Join(h.locks, name)) == nil {
					removed++
				}
			}
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
	return removed > 0
}

// tickets lists the lock files there are, in order.
func (h *harness) tickets() map[string][]string {
	names, err := filepath.Glob(filepath.Join(h.locks, "*"))
	if err != nil {
		return nil
	}
	tickets := make(map[string][]string)
	for _, path := range names {
		name := filepath.Base(path)
		if t, err := serializer.ParseTicket(name); err == nil {
			tickets[t.Prefix] = append(tickets[t.Prefix], name)
		}
	}
	return tickets
}

// removeOwnerFiles removes the names of the owner files. What goes with them is put
// back by those who work in the directory; who comes in the very same moment may
// not know of it, so that is left out.
func removeOwnerFiles(h *harness, _ *rand.Rand) bool {
	names, err := filepath.Glob(filepath.Join(h.locks, ".orderly-owner-*"))
	if err != nil {
		return false
	}
	defer h.timeline.begin("owners", 0)()
	removed := 0
	for _, path := range names {
		if os.Remove(path) == nil {
			removed++
		}
	}
	return removed > 0
}

func takePermissions(h *harness, r *rand.Rand) bool {
	if !h.active.disk.TryLock() {
		return false
	}
	defer h.active.disk.Unlock()
	defer h.timeline.begin("permissions", 0)()
	if os.Chmod(h.locks, 0) != nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 300))
	return os.Chmod(h.locks, h.mode()) == nil
}

func useInodes(h *harness, r *rand.Rand) bool {
	return h.fill(r, "inodes", func(dir string) error {
		for i := 0; ; i++ {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				return err
			}
			f.Close()
		}
	})
}

func useBytes(h *harness, r *rand.Rand) bool {
	return h.fill(r, "bytes", func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			return err
		}
		defer f.Close()
		for {
			if _, err := f.Write(make([]byte, 4096)); err != nil {
				return err
			}
		}
	})
}

// fill uses something up for a while.
func (h *harness) fill(r *rand.Rand, fault string, use func(dir string) error) bool {
	if !inOwnNamespace() {
		return false // it would be the machine's
	}
	if !h.active.disk.TryLock() {
		return false
	}
	defer h.active.disk.Unlock()
	dir := filepath.Join(h.base, "filler")
	if os.Mkdir(dir, 0o700) != nil {
		return false
	}
	defer os.RemoveAll(dir)
	defer h.timeline.begin(fault, 0)()
	for range r.IntN(4) + 1 {
		_ = use(dir) // again, for what was given back meanwhile
		time.Sleep(milliseconds(r, 1, 100))
	}
	return true
}

func useDescriptors(h *harness, r *rand.Rand) bool {
	s := h.take(r)
	if s == nil {
		return false
	}
	defer s.Unlock()
	defer h.timeline.begin("descriptors", s.number)()
	h.set(control(s.index, ctlFileLimit), uint64(1+r.IntN(4)))
	time.Sleep(milliseconds(r, 5, 50))
	if h.has("reload") && r.IntN(2) == 0 {
		h.add(control(s.index, ctlReloads), 1)
	}
	time.Sleep(milliseconds(r, 1, 500))
	h.set(control(s.index, ctlFileLimit), 0)
	return true
}

func milliseconds(r *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+r.IntN(to-from)) * time.Millisecond
}
