package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// harness is one run.
type harness struct {
	config
	eventLog
	timeline timeline
	base     string // contains all files of the run
	small    bool   // base is a small file system of its own
	locks    string // the directory under torture
	slots    []*slot
	numbers  atomic.Int64 // of processes and pauses
	ending   atomic.Bool  // no fault begins any more
	disk     sync.Mutex   // held by a fault of the shared directory
	pausing  sync.Mutex   // held while a queue is paused
	reading  sync.WaitGroup

	judging sync.Mutex
	oracle  *oracle

	mu       sync.Mutex
	problems []string
	thrown   map[string]int
}

// settleTime is how long after a fault the queue counts as disturbed.
const settleTime = 300 * time.Millisecond

// torture makes a run.
func torture(ctx context.Context, c config) (*report, error) {
	h := &harness{config: c, thrown: make(map[string]int)}
	start := time.Now()
	if err := h.setUp(); err != nil {
		h.tearDown()
		return nil, err
	}
	h.run(ctx)
	took := time.Since(start)
	h.tearDown()
	return h.report(took), nil
}

func (h *harness) setUp() (err error) {
	if h.base, err = os.MkdirTemp("", "torture"); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	h.small = mountSmall(h.base, h.procs*h.goroutines)
	h.locks = filepath.Join(h.base, "locks")
	if err := errors.Join(os.Chmod(h.base, 0o755), h.give(h.base), h.makeLocks(h.locks)); err != nil {
		return err
	}
	h.oracle = newOracle(&h.timeline)
	in, out, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	h.eventLog = eventLog{out}
	h.reading.Go(func() { h.read(in) })
	for i := range h.procs {
		s := &slot{index: i}
		h.slots = append(h.slots, s)
		if err := h.start(s); err != nil {
			return err
		}
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
		if s.exited != nil {
			h.end(s)
		}
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
	ctx, stop := context.WithTimeout(ctx, h.length)
	defer stop()
	go h.follow(ctx, stop)
	h.throwFaults(ctx)
	h.ending.Store(true)
	h.checkPeace()
	h.finish()
}

// follow stops the run if something is found.
func (h *harness) follow(ctx context.Context, stop func()) {
	for sleep(ctx, 5*time.Millisecond) {
		if h.failed() {
			stop()
		}
	}
}

// read lets the oracle judge all records.
func (h *harness) read(in *os.File) {
	defer in.Close()
	var r record
	for buffered := bufio.NewReaderSize(in, 1<<16); ; {
		if _, err := io.ReadFull(buffered, r.bytes()); err != nil {
			return
		}
		h.tell(func(o *oracle) { o.judge(r) })
	}
}

// tell tells the oracle something.
func (h *harness) tell(what func(o *oracle)) {
	h.judging.Lock()
	defer h.judging.Unlock()
	what(h.oracle)
}

// failed reports whether something was found, so that it is useless to continue.
func (h *harness) failed() (failed bool) {
	h.tell(func(o *oracle) { failed = len(o.found) > 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	return failed || len(h.problems) > 0
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
	h.problem("lost: without any fault for %v, arrivals are refused, or a process does not get in", graceTime)
}

// haveEntered reports whether each process has had an entry of an arrival after a moment.
func (h *harness) haveEntered(after int64) bool {
	for _, s := range h.slots {
		if !h.call(s, "Process.Entered", after) {
			return false
		}
	}
	return true
}

// finish lets all processes end their arrivals, and checks what is left.
func (h *harness) finish() {
	if h.failed() {
		return
	}
	deadline := time.After(h.patience + graceTime)
	for _, s := range h.slots {
		h.call(s, "Process.Stop", 0)
	}
	for _, s := range h.slots {
		select {
		case <-s.exited:
		case <-deadline:
			h.problem("lost: the process in slot %d does not end", s.index)
			return
		}
	}
	killed := false
	h.tell(func(o *oracle) { killed = len(o.deaths) > 0 })
	for _, path := range h.files("*") {
		if !mayStay(filepath.Base(path), killed) {
			h.problem("file left behind: %q", path)
		}
	}
}

// mayStay reports whether a file may be there when all processes have ended. Whoever lists
// the directory removes the draft of a process that was killed, but only after minutes.
func mayStay(file string, killed bool) bool {
	return file == guardName || killed && strings.HasPrefix(file, drafts)
}

func (h *harness) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}
