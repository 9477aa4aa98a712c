package serializer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// helper is what another process of a test does: it becomes a user, opens an
// engine and enters a queue. It prints "open", "inside", "told: ..." when it is
// evicted, and errors; it leaves when its standard input ends.
type helper struct {
	UID, GID    int // 0: as this process
	Dir, Queue  string
	Timeout     time.Duration
	StopInGuard bool // it stops itself while it gives itself a ticket
	Behind      bool // it opens only, and enters when it reads a line
	Resume      bool // it only resumes the queue, by its engine and from outside
	Pause       bool // it only pauses the queue from outside, for the timeout
	Again       bool // it leaves when it reads a line, and enters again
}

const helperEnv = "ORDERLY_TEST_HELPER"

func TestMain(m *testing.M) {
	if text := os.Getenv(helperEnv); text != "" {
		if err := beHelper(text); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beHelper(text string) error {
	var h helper
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return err
	}
	if h.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(h.GID), syscall.Setuid(h.UID)); err != nil {
			return err
		}
	}
	syscall.Umask(0o027)
	e, err := OpenFile(h.Dir, FileOptions{Clock: h.clock})
	if err != nil {
		return err
	}
	defer e.Close()
	fmt.Println("open")
	if h.Resume {
		return errors.Join(e.Resume(context.Background(), h.Queue), ResumeQueue(h.Dir, h.Queue))
	}
	if h.Pause {
		until := time.Now().Add(h.Timeout)
		if h.Timeout == 0 {
			until = time.Time{}
		}
		return PauseQueue(h.Dir, h.Queue, until)
	}
	if h.Behind {
		if _, err := fmt.Scanln(); err != nil && !strings.Contains(err.Error(), "newline") {
			return err
		}
	}
	a := arrival(h.Queue)
	a.Timeout = h.Timeout
	a.Revoke = func(cause error) { fmt.Println("told:", cause) }
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		return err
	}
	fmt.Println("inside")
	if h.Again {
		_, _ = fmt.Scanln()
		turn.Leave()
		if turn, err = e.Enter(context.Background(), a); err != nil {
			return err
		}
		fmt.Println("inside again")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	turn.Leave()
	return nil
}

func (h *helper) clock() time.Time {
	if h.StopInGuard {
		h.StopInGuard = false
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	return time.Now()
}

// process is a running helper.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines chan string
}

func (h helper) start(t testing.TB) *process {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(os.Args[0]), lines: make(chan string, 10)}
	p.Env = append(os.Environ(), helperEnv+"="+string(text))
	p.Stderr = os.Stderr
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		for range p.lines {
		}
		_ = p.Wait()
	})
	return p
}

// says waits for the next line of a process, which begins with want.
func (p *process) says(t testing.TB, want string) string {
	t.Helper()
	select {
	case line := <-p.lines:
		if !strings.HasPrefix(line, want) {
			t.Fatalf("the process says %q, want %q", line, want)
		}
		return line
	case <-time.After(patience):
		t.Fatalf("the process does not say %q", want)
	}
	return ""
}

// leave lets a process end its turn.
func (p *process) leave(t testing.TB) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// stopped waits until a process has stopped.
func (p *process) stopped(t testing.TB) {
	t.Helper()
	wait.Until(t, "the process has stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		_, state, _ := strings.Cut(string(text), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	})
}
