package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// harness is one run.
type harness struct {
	config
	eventLog
	base    string // contains all files of the run
	small   bool   // base is a small file system of its own
	locks   string // the directory under torture
	slots   []*slot
	started atomic.Int64 // how many processes
	ending  atomic.Bool  // no fault begins any more
	stop    func()       // ends the faults
	reading sync.WaitGroup

	mu     sync.Mutex
	oracle *oracle
	inUse  resources // by faults in progress
}

// settleTime is how long after a fault the queue counts as disturbed.
const settleTime = 300 * time.Millisecond

// torture makes a run.
func torture(ctx context.Context, c config) (*report, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h := &harness{config: c, stop: stop, oracle: newOracle()}
	if err := h.setUp(); err != nil {
		h.tearDown()
		return nil, err
	}
	h.run(ctx)
	took := since(h.oracle.start)
	h.tearDown()
	slices.Sort(h.oracle.recovered)
	return &report{h.config, h.oracle, took}, nil
}

func (h *harness) setUp() (err error) {
	if h.base, err = os.MkdirTemp("", "torture"); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	h.small = mountSmall(h.base, h.procs*h.Goroutines)
	h.locks = filepath.Join(h.base, "locks")
	if err := errors.Join(os.Chmod(h.base, 0o755), h.give(h.base), h.makeLocks(h.locks)); err != nil {
		return err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	h.eventLog = eventLog{out}
	h.reading.Go(func() { h.read(in) })
	for i := range h.procs {
		s := &slot{index: i}
		if err := h.start(s); err != nil {
			return err
		}
		h.slots = append(h.slots, s)
	}
	return nil
}

// makeLocks makes a lock directory, unless a process already has.
func (h *harness) makeLocks(path string) error {
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making lock directory: %w", err)
	}
	return h.give(path)
}

// give gives a directory to the user of the processes.
func (h *harness) give(path string) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Chown(path, nobody, -1)
}

func (h *harness) tearDown() {
	for _, s := range h.slots {
		h.end(s)
	}
	if h.File != nil {
		_ = h.Close()
		h.reading.Wait()
	}
	if h.small {
		_ = unix.Unmount(h.base, unix.MNT_DETACH)
	}
	_ = os.RemoveAll(h.base)
}

// run throws faults until the time is over or something is found, and then ends all
// processes.
func (h *harness) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.length)
	defer cancel()
	h.throwFaults(ctx)
	h.ending.Store(true)
	h.checkPeace()
	h.finish()
}

// read lets the oracle judge all records.
func (h *harness) read(in *os.File) {
	defer in.Close()
	for buffered := bufio.NewReaderSize(in, 1<<16); ; {
		r := new(record)
		if _, err := io.ReadFull(buffered, r.bytes()); err != nil {
			return
		}
		h.tell(func(o *oracle) { o.judge(r) })
	}
}

// tell reports to the oracle, or asks it. If something was found, the faults end.
func (h *harness) tell(what func(o *oracle)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what(h.oracle)
	if len(h.oracle.found) > 0 {
		h.stop()
	}
}

// problem notes that a call was lost, or what else is wrong.
func (h *harness) problem(format string, args ...any) {
	h.tell(func(o *oracle) { o.find(lost, fmt.Sprintf(format, args...)) })
}

// failed reports whether something was found, so that it is useless to continue.
func (h *harness) failed() (failed bool) {
	h.tell(func(o *oracle) { failed = len(o.found) > 0 })
	return failed
}

// checkPeace checks that the queue serves every process again once the faults are over.
func (h *harness) checkPeace() {
	refusals := func() (n int) {
		h.tell(func(o *oracle) { n = o.refused[failed] + o.refused[outcomeOf(serializer.ReasonStorage)] })
		return n
	}
	for start := now(); since(start) < graceTime; {
		begun, before := now(), refusals()
		time.Sleep(settleTime)
		if h.failed() || h.haveEntered(begun) && refusals() == before {
			return
		}
	}
	h.problem("without any fault for %v, arrivals are refused, or a process does not get in", graceTime)
}

// haveEntered reports whether the newest engine of each process has let one enter that arrived after a moment.
func (h *harness) haveEntered(after int64) (all bool) {
	h.tell(func(o *oracle) {
		all = !slices.ContainsFunc(h.slots, func(s *slot) bool {
			engine := o.newest[s.child.Load().number]
			return engine == nil || engine.began <= after
		})
	})
	return all
}

// finish lets all processes end their arrivals, and checks what is left.
func (h *harness) finish() {
	if h.failed() {
		return
	}
	deadline := time.After(h.Patience + graceTime)
	for _, s := range h.slots {
		h.call(s, "Process.Stop", 0)
	}
	for _, s := range h.slots {
		select {
		case <-s.child.Load().exited:
		case <-deadline:
			h.problem("the process in slot %d does not end", s.index)
			return
		}
	}
	for _, path := range h.files("*") {
		// A process that lists the directory removes the draft of a process that was killed, but
		// only after minutes.
		if file := filepath.Base(path); file != guardName && !strings.HasPrefix(file, drafts) {
			h.problem("file left behind: %q", path)
		}
	}
}

// slot is a place for a process. The fault that acts on the process holds its lock.
type slot struct {
	sync.Mutex
	index int
	child atomic.Pointer[child]
}

// child is a process that the harness has started.
type child struct {
	number int
	cmd    *exec.Cmd
	client *rpc.Client
	exited chan struct{}
}

// nobody is the user of the processes, because permissions do not apply to root.
const nobody = 65534

// start starts a process in a slot.
func (h *harness) start(s *slot) error {
	of := h.settings
	of.Number, of.Dir = int(h.started.Add(1)), h.locks
	text, _ := json.Marshal(of)           // texts and numbers always marshal
	cmd := exec.Command("/proc/self/exe") // whose directory the other user might not reach
	cmd.Env = append(os.Environ(), settingsEnv+"="+string(text))
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{h.File}
	calls, errIn := cmd.StdinPipe()
	answers, errOut := cmd.StdoutPipe()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return fmt.Errorf("starting a process: %w", err)
	}
	c := &child{of.Number, cmd, rpc.NewClient(connection{answers, calls}), make(chan struct{})}
	s.child.Store(c)
	go h.reap(c)
	return nil
}

// end kills a process.
func (h *harness) end(s *slot) {
	c := s.child.Load()
	h.note(record{who: who{process: c.number}, what: dies, at: now()})
	_ = c.cmd.Process.Kill()
	<-c.exited
	_ = c.client.Close()
}

// reap waits for a process to end.
func (h *harness) reap(c *child) {
	err := c.cmd.Wait()
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if killed := ok && status.Signaled() && status.Signal() == syscall.SIGKILL; err != nil && !killed {
		h.problem("a process ended by itself: %v", err)
	}
	close(c.exited)
}

// callPatience is how long the harness waits for a process that may be stopped.
const callPatience = 10 * time.Second

// call calls a method of a process. It reports whether that succeeded: the process may be
// killed before.
func (h *harness) call(s *slot, method string, arg any) bool {
	c := s.child.Load()
	select {
	case answer := <-c.client.Go(method, arg, new(bool), make(chan *rpc.Call, 1)).Done:
		return answer.Error == nil
	case <-time.After(callPatience):
	}
	_ = c.cmd.Process.Signal(syscall.SIGQUIT) // it shows where it hangs, unless it is stopped
	select {
	case <-c.exited:
	case <-time.After(time.Second):
	}
	h.problem("the process in slot %d does not return from %s", s.index, method)
	return false
}

// callAny calls a method of one of the processes, which may be killed in the meantime.
func (h *harness) callAny(r *rand.Rand, method string, arg any) bool {
	if s := h.take(r); s != nil {
		s.Unlock()
		return h.call(s, method, arg)
	}
	return false
}

// take locks the slot of a process that no fault is acting on.
func (h *harness) take(r *rand.Rand) *slot {
	for _, i := range r.Perm(len(h.slots)) {
		if s := h.slots[i]; s.TryLock() {
			return s
		}
	}
	return nil
}
