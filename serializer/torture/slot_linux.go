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
	text, _ := json.Marshal(of) // texts and numbers always marshal
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("making a socket: %w", err)
	}
	socket := os.NewFile(uintptr(ends[1]), "process")
	defer socket.Close()
	cmd := exec.Command("/proc/self/exe") // whose directory the other user might not reach
	cmd.Env = append(os.Environ(), settingsEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{h.File, socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a process: %w", err)
	}
	c := &child{of.Number, cmd, rpc.NewClient(os.NewFile(uintptr(ends[0]), "harness")), make(chan struct{})}
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
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		err = nil // killed by the harness
	}
	if err != nil {
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
