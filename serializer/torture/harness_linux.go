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

// harness is one run, and says how it went.
type harness struct {
	config
	log     *os.File // of records
	base    string   // contains all files of the run
	small   bool     // base is a small file system of its own
	locks   string   // the directory under torture
	slots   []*slot
	started atomic.Int64 // how many processes
	ending  atomic.Bool  // no fault begins any more
	stop    func()       // ends the faults
	reading sync.WaitGroup
	took    time.Duration

	mu sync.Mutex
	*oracle
}

// settleTime is how long after a fault the queue counts as disturbed.
const settleTime = 300 * time.Millisecond

// torture makes a run with chosen faults: it throws them until the time is over or something is found,
// and then ends all processes.
func torture(ctx context.Context, c config, chosen string) (*harness, error) {
	h := &harness{config: c, oracle: newOracle()}
	ctx, h.stop = context.WithTimeout(ctx, h.length)
	defer h.stop()
	faults, err := chooseFaults(chosen)
	if err != nil {
		return nil, err
	}
	defer h.tearDown()
	if err := h.setUp(); err != nil {
		return nil, fmt.Errorf("setting up: %w", err)
	}
	h.throwFaults(ctx, faults)
	h.ending.Store(true)
	h.checkPeace()
	h.finish()
	h.took = since(h.oracle.start)
	return h, nil
}

func (h *harness) setUp() (err error) {
	if h.base, err = os.MkdirTemp("", "torture"); err != nil {
		return err
	}
	h.small = mountSmall(h.base, h.procs*h.Goroutines)
	h.locks = filepath.Join(h.base, "locks")
	in, out, err := os.Pipe()
	if err = errors.Join(err, makeDir(h.base), makeDir(h.locks)); err != nil {
		return err
	}
	h.log = out
	h.reading.Go(func() { h.read(in) })
	for range h.procs {
		s := new(slot)
		if err := h.start(s); err != nil {
			return err
		}
		h.slots = append(h.slots, s)
	}
	return nil
}

// makeDir makes a directory for the processes, unless it is there.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o750)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if os.Getuid() != 0 {
		return err
	}
	return errors.Join(err, os.Chown(path, nobody, -1))
}

func (h *harness) tearDown() {
	for _, s := range h.slots {
		h.end(s)
	}
	if h.log != nil {
		_ = h.log.Close()
		h.reading.Wait()
	}
	if h.small {
		_ = unix.Unmount(h.base, unix.MNT_DETACH)
	}
	_ = os.RemoveAll(h.base)
}

// read lets the oracle judge all records.
func (h *harness) read(in *os.File) {
	defer in.Close()
	for buffered := bufio.NewReaderSize(in, 1<<16); ; {
		r := new(record)
		if _, err := io.ReadFull(buffered, r.bytes()); err != nil {
			return
		}
		h.tell(func() { h.judge(r) })
	}
}

// tell reports to the oracle, or asks it. If something was found, the faults end.
func (h *harness) tell(what func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what()
	if !h.holds() {
		h.stop()
	}
}

// problem notes that a call was lost, or what else is wrong.
func (h *harness) problem(format string, args ...any) {
	h.tell(func() { h.find(lost, fmt.Sprintf(format, args...)) })
}

// failed reports whether something was found, so that it is useless to continue.
func (h *harness) failed() (failed bool) {
	h.tell(func() { failed = !h.holds() })
	return failed
}

// checkPeace checks that the queue serves every process again once the faults are over.
func (h *harness) checkPeace() {
	refusals := func() (n int) {
		h.tell(func() { n = h.refused[failed] + h.refused[outcomeOf(serializer.ReasonStorage)] })
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
	h.tell(func() {
		all = !slices.ContainsFunc(h.slots, func(s *slot) bool {
			engine := h.newest[s.child.Load().number]
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
		h.call(s, "Process.Stop", uint64(0))
	}
	for _, s := range h.slots {
		select {
		case <-s.child.Load().exited:
		case <-deadline:
			h.problem("process %d does not end", s.child.Load().number)
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
	of := h.config
	of.Number, of.Dir = int(h.started.Add(1)), h.locks
	text, _ := json.Marshal(of)           // texts and numbers always marshal
	cmd := exec.Command("/proc/self/exe") // whose directory the other user might not reach
	cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{h.log}
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
	h.signal(c, syscall.SIGKILL)
	<-c.exited
	_ = c.client.Close()
}

// signal sends a process a signal by which it dies.
func (h *harness) signal(c *child, sig os.Signal) {
	r := record{process: c.number, what: dies, at: now()}
	_, _ = h.log.Write(r.bytes())
	_ = c.cmd.Process.Signal(sig)
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
	hangs := time.AfterFunc(callPatience, func() {
		h.signal(c, syscall.SIGQUIT) // it shows where, once it is not stopped
		h.problem("process %d does not return from %s", c.number, method)
	})
	defer hangs.Stop()
	return c.client.Call(method, arg, new(bool)) == nil
}

// callAny calls a method of one of the processes, which may be killed in the meantime.
func (h *harness) callAny(r *rand.Rand, method string, arg any) bool {
	s := h.take(r)
	if s == nil {
		return false
	}
	s.Unlock()
	return h.call(s, method, arg)
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
