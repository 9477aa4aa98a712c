package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// slot is a place for a process. The fault that acts on the process holds its lock.
type slot struct {
	sync.Mutex
	index  int
	number int
	cmd    *exec.Cmd
	exited chan struct{}

	client atomic.Pointer[rpc.Client]
}

// nobody is the user of the processes, because permissions do not apply to root.
const nobody = 65534

// start starts a process in a slot.
func (h *harness) start(s *slot) error {
	s.number = int(h.numbers.Add(1))
	text, err := json.Marshal(settings{
		Number:     s.number,
		Dir:        h.locks,
		Store:      h.store,
		Goroutines: h.goroutines,
		Seed:       h.seed,
		Patience:   h.patience,
	})
	if err != nil {
		return err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("making a socket: %w", err)
	}
	socket := os.NewFile(uintptr(ends[1]), "process")
	defer socket.Close()
	s.client.Store(rpc.NewClient(os.NewFile(uintptr(ends[0]), "harness")))
	s.cmd = exec.Command("/proc/self/exe") // whose directory the other user might not reach
	s.cmd.Env = append(os.Environ(), settingsEnv+"="+string(text))
	s.cmd.Stderr = os.Stderr
	s.cmd.ExtraFiles = []*os.File{h.File, socket}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Getuid() == 0 {
		s.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting a process: %w", err)
	}
	s.exited = make(chan struct{})
	go h.reap(s.cmd, s.exited)
	return nil
}

// end kills a process.
func (h *harness) end(s *slot) {
	h.note(record{who: who{process: s.number}, what: dies, at: now()})
	_ = s.cmd.Process.Kill()
	<-s.exited
	_ = s.client.Load().Close()
}

// reap waits for a process to end.
func (h *harness) reap(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		err = nil // killed by the harness
	}
	if err != nil {
		h.problem("a process ended by itself: %v", err)
	}
	close(exited)
}

// callPatience is how long the harness waits for a process that may be stopped.
const callPatience = 10 * time.Second

// call calls a method of a process. It reports whether that succeeded: the process may be
// killed before.
func (h *harness) call(s *slot, method string, arg any) bool {
	client := s.client.Load()
	if returned, err := within(callPatience, client, method, arg); returned {
		return err == nil
	}
	_, _ = within(time.Second, client, "Process.Dump", 0) // shows where it hangs, unless it is stopped
	h.problem("lost: the process in slot %d does not return from %s", s.index, method)
	return false
}

// within calls a method through a client. It waits only for a while.
func within(patience time.Duration, client *rpc.Client, method string, arg any) (returned bool, err error) {
	select {
	case c := <-client.Go(method, arg, new(bool), make(chan *rpc.Call, 1)).Done:
		return true, c.Error
	case <-time.After(patience):
		return false, nil
	}
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
