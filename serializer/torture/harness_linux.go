package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// harness is one run.
type harness struct {
	config
	*shared
	oracle *oracle
	uid    int    // of the processes, or of the first of their users
	base   string // contains all files of the run
	locks  string // the directory under torture
	rand   *rand.Rand

	slots   []*slot
	numbers atomic.Int64
	launch  chan func() // called by the thread that starts processes
	ending  atomic.Bool
	active  activity

	timeline timeline

	mu       sync.Mutex
	problems []string
	counts   [outcomes]uint64
	begun    uint64
	cutOff   uint64
	faulted  map[string]int
}

// slot is a place for a process. The fault that acts on the process holds its lock.
type slot struct {
	sync.Mutex
	index  int
	number int
	cmd    *exec.Cmd
	exited chan struct{}
	killed bool
	user   int // index into users, modulo their number
}

const nobody = 65534

// users are the users of the processes. If they share a directory, all but root are in
// its group, and the first one owns it.
func (h *harness) users() []int {
	if h.shares() {
		return []int{h.uid, 0, h.uid - 1}
	}
	return []int{h.uid}
}

// userOf is the user of the process in a slot.
func (h *harness) userOf(s *slot) int {
	users := h.users()
	return users[s.user%len(users)]
}

// shares reports whether the processes belong to several users.
func (h *harness) shares() bool { return h.has("users") && os.Getuid() == 0 }

// mode is the mode of the lock directory.
func (h *harness) mode() os.FileMode {
	if h.shares() {
		return os.ModeSetgid | 0o770
	}
	return 0o750
}

// other is the path at which the fault "links" keeps the directory that is not in use.
func (h *harness) other() string { return h.locks + ".other" }

// torture makes a run.
func torture(ctx context.Context, c config) (*report, error) {
	h := &harness{config: c, rand: rand.New(rand.NewPCG(c.seed, 0)), launch: make(chan func()), faulted: make(map[string]int)}
	if err := h.setUp(); err != nil {
		return nil, err
	}
	defer h.tearDown()
	start := time.Now()
	h.progress("seed %d, %d processes with %d goroutines each, engine %s, in %s", c.seed, c.procs, c.goroutines, c.engine, h.locks)
	for i := range c.procs {
		s := &slot{index: i, user: i}
		h.slots = append(h.slots, s)
		if err := h.start(s); err != nil {
			return nil, err
		}
	}
	h.watch(ctx)
	took := time.Since(start)
	h.finish()
	return h.report(took), nil
}

func (h *harness) setUp() (err error) {
	h.uid = os.Getuid()
	if h.uid == 0 {
		h.uid = nobody // permissions do not apply to root
	}
	if h.base = h.dir; h.base == "" {
		if h.base, err = os.MkdirTemp("", "torture"); err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
	}
	if h.needsMount() && inOwnNamespace() {
		if err := mountSmall(h.base, h.procs*h.goroutines); err != nil {
			return err
		}
	}
	h.locks = filepath.Join(h.base, "locks")
	if err := h.openBase(); err != nil {
		return err
	}
	if err := h.makePaths(); err != nil {
		return err
	}
	if h.shared, err = newShared(h.records()); err != nil {
		return err
	}
	h.oracle = newOracle(h.shared, h.queues())
	go h.launcher()
	return nil
}

func (h *harness) openBase() error {
	if err := errors.Join(os.Chmod(h.base, 0o755), os.Chown(h.base, h.uid, -1)); err != nil {
		return fmt.Errorf("preparing directory: %w", err)
	}
	return nil
}

// makePaths makes the lock directory. With the fault "links", it makes two, and links to
// them.
func (h *harness) makePaths() error {
	if !h.has("links") {
		return h.makeLocks(h.locks)
	}
	for link, name := range map[string]string{h.locks: "first", h.other(): "second"} {
		if err := h.makeLocks(filepath.Join(h.base, name)); err != nil {
			return err
		}
		if err := os.Symlink(name, link); err != nil {
			return fmt.Errorf("preparing lock directory: %w", err)
		}
	}
	return nil
}

// makeLocks makes a lock directory, unless a process already has.
func (h *harness) makeLocks(path string) error {
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making lock directory: %w", err)
	}
	gid := -1
	if h.shares() {
		gid = nobody
	}
	if err := errors.Join(os.Chown(path, h.uid, gid), os.Chmod(path, h.mode())); err != nil {
		return fmt.Errorf("preparing lock directory: %w", err)
	}
	return nil
}

func (h *harness) tearDown() {
	h.ending.Store(true)
	for _, s := range h.slots {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			<-s.exited
		}
	}
	close(h.launch)
	h.shared.close()
	if h.needsMount() && inOwnNamespace() {
		_ = unix.Unmount(h.base, unix.MNT_DETACH)
	}
	if h.dir == "" {
		_ = os.RemoveAll(h.base)
	}
}

// launcher starts all processes from one thread, because they die with that thread.
func (h *harness) launcher() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for do := range h.launch {
		do()
	}
}

// start starts a process in a slot.
func (h *harness) start(s *slot) error {
	number := int(h.numbers.Add(1))
	text, err := json.Marshal(orders{
		Slot:       s.index,
		Number:     number,
		Dir:        h.locks,
		Engine:     h.engine,
		Goroutines: h.goroutines,
		Seed:       h.seed,
		UID:        h.userOf(s),
		GID:        h.uid,
		Cancel:     h.has("cancel"),
		Timeout:    h.has("timeout"),
		Supersede:  h.has("supersede"),
	})
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{h.file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	for w := range controlWords {
		h.set(control(s.index, w), 0)
	}
	h.oracle.born(number, s.index)
	started := make(chan error)
	h.launch <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("starting a process: %w", err)
	}
	s.number, s.cmd, s.killed, s.exited = number, cmd, false, make(chan struct{})
	go h.reap(s, cmd, s.exited)
	return nil
}

// reap waits for a process to end.
func (h *harness) reap(s *slot, cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		err = nil // killed by the harness
	}
	if err != nil {
		h.problem("a process ended by itself: %v", err)
	}
	close(exited)
}

// settle adds up the counters of a process that has ended, before its slot is reused.
func (h *harness) settle(s *slot, killed bool) {
	<-s.exited
	h.oracle.ended(s.number)
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := range h.goroutines {
		begun, ended := h.get(goroutineWord(s.index, g, goBegun)), uint64(0)
		for o := range outcomes {
			n := h.get(goroutineWord(s.index, g, goOutcomes+o))
			h.counts[o] += n
			ended += n
		}
		h.begun += begun
		switch {
		case begun == ended:
		case killed && begun == ended+1:
			h.cutOff++
		default:
			h.problems = append(h.problems, fmt.Sprintf("lost: goroutine %d.%d began %d arrivals and ended %d", s.number, g, begun, ended))
		}
	}
}

// watch waits until the run is done or has failed.
func (h *harness) watch(ctx context.Context) {
	faults, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { h.throwFaults(faults) })
	defer h.checkPeace(ctx)
	defer group.Wait()
	defer stop()
	defer h.ending.Store(true)
	end := time.After(h.limit)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	last := 0
	for seconds := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-look.C:
			h.oracle.catchUp()
			n, _, found := h.oracle.sofar()
			if n >= h.handovers || h.failed() || found.of(h.stop) > 0 {
				return
			}
		case <-second.C:
			n, recoveries, found := h.oracle.sofar()
			if seconds%5 == 0 {
				h.progress("%d hand-overs, %d/s, %d overlaps, %d inversions, %d intrusions, %d recoveries, faults %v",
					n, n-last, found.overlaps, found.inverted, found.intruded, recoveries, h.faultsThrown())
			}
			last = n
			seconds++
			h.checkDeadlines()
		}
	}
}

// graceTime is how late Enter may return. It covers delays that are not the queue's
// fault: a stopped process, a busy machine.
const graceTime = 15 * time.Second

func (h *harness) checkDeadlines() {
	for _, s := range h.slots {
		if !s.TryLock() {
			continue
		}
		for g := range h.goroutines {
			ended := uint64(0)
			for o := range outcomes {
				ended += h.get(goroutineWord(s.index, g, goOutcomes+o))
			}
			// Read before the times, which are set before the arrival counts as begun.
			out := h.get(goroutineWord(s.index, g, goBegun)) > ended
			late := since(int64(h.get(goroutineWord(s.index, g, goDeadline))))
			slow := h.dump > 0 && since(int64(h.get(goroutineWord(s.index, g, goSince)))) > h.dump
			if out && (late > graceTime || slow) {
				h.problem("lost: goroutine %d.%d is %v over its deadline", s.number, g, late)
				_ = s.cmd.Process.Signal(syscall.SIGQUIT) // shows where it hangs
				break
			}
		}
		s.Unlock()
	}
}

// peaceTime is how long after the last fault the queue may still refuse arrivals, or
// admit nobody. It covers delays that are not the queue's fault.
const peaceTime = 15 * time.Second

// checkPeace checks that the queue serves every process again once the faults are over. A
// process that is shut out by another user's files would be refused for ever.
func (h *harness) checkPeace(ctx context.Context) {
	if h.stop != "" || h.engine == "predecessor" || h.failed() {
		return
	}
	var why string
	for start := time.Now(); time.Since(start) < peaceTime && ctx.Err() == nil; {
		if why = h.troubles(settleTime); why == "" {
			return
		}
	}
	if ctx.Err() == nil {
		h.problem("lost: without any fault for %v, %s", peaceTime, why)
	}
}

// troubles watches for a while, and says which process was refused or did not enter.
func (h *harness) troubles(during time.Duration) string {
	before := make([]uint64, len(h.slots))
	begun := now()
	for i := range h.slots {
		before[i] = h.refusals(i)
	}
	time.Sleep(during)
	h.oracle.catchUp()
	for i, s := range h.slots {
		if n := h.refusals(i) - before[i]; n > 0 {
			return fmt.Sprintf("process %d of user %d was refused %d times", s.number, h.userOf(s), n)
		}
		if int64(h.get(control(i, ctlLastEntry))) < begun {
			return fmt.Sprintf("process %d of user %d did not get in", s.number, h.userOf(s))
		}
	}
	return ""
}

// refusals counts the refused arrivals of a process, except for timeouts, and its attempts
// to open an engine that failed.
func (h *harness) refusals(slot int) (n uint64) {
	n = h.get(control(slot, ctlOpenErrors))
	for g := range h.goroutines {
		n += h.get(goroutineWord(slot, g, goOutcomes+storage)) + h.get(goroutineWord(slot, g, goOutcomes+other))
	}
	return n
}

// failed reports whether it is useless to continue.
func (h *harness) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.problems) > 0
}

// finish lets all processes end their arrivals, and checks what is left.
func (h *harness) finish() {
	h.ending.Store(true)
	h.set(wordStop, 1)
	deadline := time.After(longTimeout + graceTime)
	for _, s := range h.slots {
		s.Lock()
		select {
		case <-s.exited:
		case <-deadline:
			h.problem("lost: process %d does not end", s.number)
			_ = s.cmd.Process.Signal(syscall.SIGQUIT)
			select {
			case <-s.exited:
			case <-time.After(5 * time.Second):
				_ = s.cmd.Process.Kill()
			}
		}
		h.oracle.catchUp()
		h.settle(s, s.killed)
		s.Unlock()
	}
	h.oracle.catchUp()
	h.oracle.checkLatest()
	if h.oracle.isFull() {
		h.problem("the log is full; it holds %d records", h.oracle.records())
	}
	if h.engine == "file" {
		h.checkLeftovers()
	}
}

// records is how many records the log has room for. An arrival that enters makes two; one
// of the many that are superseded makes one.
func (h *harness) records() int {
	n := 2*h.handovers + 4*h.procs*h.goroutines + 1_000_000
	if h.has("supersede") {
		n += 8 * h.handovers
	}
	return n
}

// queues are the queues of this run.
func (h *harness) queues() []testQueue { return queues(h.has("supersede")) }

// checkLeftovers checks that only the guard is left in the directory.
func (h *harness) checkLeftovers() {
	entries, err := os.ReadDir(h.locks)
	if err != nil {
		h.problem("the lock directory at the end: %v", err)
		return
	}
	var left []string
	for _, e := range entries {
		if e.Name() != ".orderly-guard" {
			left = append(left, e.Name())
		}
	}
	if len(left) > 0 {
		h.problem("files left behind: %q", left[:min(len(left), 5)])
	}
}

func (h *harness) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

func (h *harness) progress(format string, args ...any) {
	if !h.quiet {
		fmt.Fprintf(os.Stderr, "torture: "+format+"\n", args...)
	}
}

// namespaceEnv is set if the program has its own mount namespace. A mount then vanishes
// with the program, however it ends.
const namespaceEnv = "ORDERLY_TORTURE_NAMESPACE"

func inOwnNamespace() bool { return os.Getenv(namespaceEnv) != "" }

// needsMount reports whether the run needs a small file system.
func (c config) needsMount() bool { return (c.has("inodes") || c.has("bytes")) && os.Getuid() == 0 }

// runInNamespace runs this program again in its own mount namespace.
func runInNamespace(ctx context.Context) (status int) {
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		return 2
	}
	runtime.LockOSThread()
	cmd := exec.CommandContext(ctx, program, os.Args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil && ctx.Err() == nil:
		fmt.Fprintln(os.Stderr, "torture: running in a mount namespace (not needed without the faults inodes and bytes):", err)
		return 2
	}
	return 0
}

// mountSmall mounts a file system with little more room than the tickets need.
func mountSmall(dir string, tickets int) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("torture", dir, "tmpfs", 0, fmt.Sprintf("nr_inodes=%d,size=1m,mode=755", 2*tickets+500)); err != nil {
		return fmt.Errorf("mounting a small file system: %w", err)
	}
	return nil
}
