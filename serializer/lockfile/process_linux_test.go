package lockfile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// helper is another process of a test. It becomes a user, opens an engine and says "open".
// Then it obeys its standard input: for "enter" it enters the queue and says "inside", with
// its token, or "error: ...", and for "leave" it leaves and says "left". When the input ends, it leaves
// and closes.
type helper struct {
	UID, GID    int // 0: as this process
	Dir, Queue  string
	Timeout     time.Duration
	StopInGuard bool // it stops itself while it gives itself its first ticket
	Deaf        bool // its system reports no changes
	NoLinks     bool // its file system has no hard links
}

const helperEnv = "ORDERLY_TEST_HELPER"

func TestMain(m *testing.M) {
	if text := os.Getenv(helperEnv); text != "" {
		if err := beHelper(text); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(0)
	}
	wait.InParallel()
	os.Exit(m.Run())
}

func beHelper(text string) error {
	var h helper
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return err
	}
	if h.Deaf {
		if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0); err != nil {
			return err
		}
	}
	if h.NoLinks {
		if err := forbidLinks(); err != nil {
			return err
		}
	}
	if h.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(h.GID), syscall.Setuid(h.UID)); err != nil {
			return err
		}
	}
	syscall.Umask(0o027)
	s, err := Open(h.Dir, Options{Clock: h.clock})
	if err != nil {
		return err
	}
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	fmt.Println("open")
	h.obey(e)
	return nil
}

// forbidLinks lets this process make no links, as some file systems do.
func forbidLinks() error {
	filter := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LINKAT, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (h *helper) obey(e *serializer.Engine) {
	a := arrival(h.Queue)
	a.Timeout = h.Timeout
	var turn serializer.Turn
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var err error
		switch lines.Text() {
		case "enter":
			if turn, err = e.Enter(context.Background(), a); err != nil {
				fmt.Println("error:", err)
				continue
			}
			fmt.Println("inside", turn.Token())
		case "leave":
			turn.Leave()
			turn = nil
			fmt.Println("left")
		}
	}
	if turn != nil {
		turn.Leave()
	}
}

// clock stops this thread. Bug: the main thread took the signal, sometimes when the helper was inside.
func (h *helper) clock() time.Time {
	if h.StopInGuard && strings.Contains(string(debug.Stack()), "numberLocked") {
		h.StopInGuard = false
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		runtime.UnlockOSThread()
	}
	return time.Now()
}

// process is a running helper.
type process struct {
	*testprocess.Process
	dir   string
	stdin io.Writer
	read  int // how much of its output
}

// start starts a helper and waits until it has opened its engine.
func (h helper) start(t testing.TB) *process {
	t.Helper()
	p := h.run(t)
	p.says(t, "open")
	return p
}

// inside starts a helper and waits until it is inside.
func (h helper) inside(t testing.TB) *process {
	t.Helper()
	p := h.start(t)
	p.enter(t, "inside")
	return p
}

// waits starts a helper that does not enter.
func (h helper) waits(t testing.TB, why string) *process {
	t.Helper()
	p := h.start(t)
	p.do(t, "enter")
	p.saysNothing(t, why)
	return p
}

func (h helper) run(t testing.TB) *process {
	t.Helper()
	text, err := json.Marshal(h)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+string(text))
	if h.Deaf { // limits of its own, which it may lower
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	return &process{Process: testprocess.Start(t, cmd), dir: h.Dir, stdin: stdin}
}

func (p *process) do(t testing.TB, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, command); err != nil {
		t.Fatal(err)
	}
}

// enter lets a process enter, and waits for what it says.
func (p *process) enter(t testing.TB, want string) string {
	t.Helper()
	p.do(t, "enter")
	return p.says(t, want)
}

// line is the next line of a process, or "" if there is none yet.
func (p *process) line() string {
	line, _, whole := strings.Cut(p.Log.String()[p.read:], "\n")
	if !whole {
		return ""
	}
	p.read += len(line) + 1
	return line
}

// says waits for the next line of a process, which begins with want.
func (p *process) says(t testing.TB, want string) (line string) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("the process says %q", want), func() bool { line = p.line(); return line != "" })
	if !strings.HasPrefix(line, want) {
		t.Fatalf("the process says %q, want %q", line, want)
	}
	return line
}

// saysNothing shows that a process says nothing within a tick.
func (p *process) saysNothing(t testing.TB, why string) {
	t.Helper()
	if line := ""; wait.Poll(3*tickInterval/2, func() bool { line = p.line(); return line != "" }) {
		t.Fatalf("%s: the process says %q", why, line)
	}
}

// leave lets a process end its turn.
func (p *process) leave(t testing.TB) {
	t.Helper()
	p.do(t, "leave")
	p.says(t, "left")
}

// halt stops a process that is inside. It may still have the guard for a moment, and others
// would wait for that.
func (p *process) halt(t testing.TB) {
	t.Helper()
	wait.Until(t, "the process has stopped without the guard", func() bool {
		p.Signal(syscall.SIGSTOP)
		p.halted(t)
		guard, err := os.Open(filepath.Join(p.dir, name.Guard))
		if err != nil {
			return true
		}
		defer guard.Close()
		if free, err := filelock.TryShared(guard.Fd()); free || err != nil {
			return true
		}
		p.Signal(syscall.SIGCONT)
		return false
	})
}

// halted waits until a process has stopped.
func (p *process) halted(t testing.TB) {
	t.Helper()
	wait.Until(t, "the process has stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		_, state, _ := strings.Cut(string(text), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	})
}

// awaitsLock waits until a process waits for a lock that another one has.
func (p *process) awaitsLock(t testing.TB) {
	t.Helper()
	wait.Until(t, "the process waits for a lock", func() bool {
		locks, err := os.ReadFile("/proc/locks")
		return err == nil && strings.Contains(string(locks), fmt.Sprintf("-> FLOCK  ADVISORY  WRITE %d ", p.PID))
	})
}
