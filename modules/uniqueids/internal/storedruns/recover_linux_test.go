package storedruns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
)

// Bug: the lock of the storage was the only protection. After its holder had died,
// several contenders got it at once: certmagic lets more than one clear away a stale
// lock. 45 of 995 recoveries gave one run to two processes.
func TestRecoverFromKilledHolder(t *testing.T) {
	for _, tt := range []struct {
		kind        string
		short, long int // how many recoveries
	}{
		{"files", 20, 10_000},
		{"lockless", 20, 10_000},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			recoveries := tt.short
			if *long {
				recoveries = tt.long
			}
			r := newRecovery(t, tt.kind)
			began := time.Now()
			for range recoveries {
				r.killHolder(t)
				r.contend(t)
			}
			t.Logf("%d recoveries in %v: %d runs, %d times no run",
				recoveries, time.Since(began).Round(time.Second), len(r.seen), r.none)
			if r.repeated > 0 {
				t.Errorf("%d of %d recoveries gave one run to two", r.repeated, recoveries)
			}
		})
	}
}

// recovery is a storage whose lock is held by processes that get killed, and
// other processes that then contend for it.
type recovery struct {
	kind, dir  string
	contenders []*child
	seen       map[uint32]bool
	repeated   int // recoveries in which a run came twice
	none       int // answers without a run
}

// contenders is how many processes take a run at once after each kill.
const contenders = 8

func newRecovery(t *testing.T, kind string) *recovery {
	r := &recovery{kind: kind, dir: t.TempDir(), seen: make(map[uint32]bool)}
	for range contenders {
		r.contenders = append(r.contenders, r.start(t, "contender"))
	}
	return r
}

// child is a process that the test has started.
type child struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (r *recovery) start(t *testing.T, role string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, kindVar+"="+r.kind, dirVar+"="+r.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, in, bufio.NewReader(out)}
}

// killHolder kills a process that takes one run after the other, at a random moment while
// it takes one. It is stopped, and killed if it has the lock.
func (r *recovery) killHolder(t *testing.T) {
	t.Helper()
	victim := r.start(t, "victim")
	repeated := r.read(t, victim)
	for held := false; !held; {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		r.signal(t, victim, syscall.SIGSTOP)
		if held = r.isHeld(t); !held {
			r.signal(t, victim, syscall.SIGCONT)
		}
	}
	r.signal(t, victim, syscall.SIGKILL)
	rest, err := io.ReadAll(victim.out)
	if err != nil {
		t.Fatal(err)
	}
	_ = victim.cmd.Wait() // it was killed
	for _, line := range strings.Fields(string(rest)) {
		repeated = r.saw(t, line) || repeated
	}
	if repeated {
		r.repeated++
	}
}

// signal sends a signal. A process that is to stop has stopped when it returns.
func (r *recovery) signal(t *testing.T, p *child, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	for signal == syscall.SIGSTOP {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(state, "T") {
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// isHeld tells whether a process has the lock of the kernel. If there is none,
// a process is always taking a run.
func (r *recovery) isHeld(t *testing.T) bool {
	t.Helper()
	if r.kind == "lockless" {
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one attempt
	lock, err := filelock.Lock(ctx, filepath.Join(r.dir, nextKey+".lock"))
	if errors.Is(err, context.Canceled) {
		return true
	}
	if err == nil {
		err = lock.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// contend lets all contenders take a run at once.
func (r *recovery) contend(t *testing.T) {
	t.Helper()
	for _, c := range r.contenders {
		if _, err := io.WriteString(c.in, "take\n"); err != nil {
			t.Fatal(err)
		}
	}
	repeated := false
	for _, c := range r.contenders {
		repeated = r.read(t, c) || repeated
	}
	if repeated {
		r.repeated++
	}
}

// read reads one answer and tells whether its run came before.
func (r *recovery) read(t *testing.T, p *child) bool {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("reading from process %d: %v", p.cmd.Process.Pid, err)
	}
	return r.saw(t, strings.TrimSpace(line))
}

func (r *recovery) saw(t *testing.T, answer string) bool {
	t.Helper()
	if strings.HasPrefix(answer, "none: ") {
		r.none++
		return false
	}
	run, err := strconv.ParseUint(answer, 10, 32)
	if err != nil {
		t.Fatalf("a process answered %q", answer)
	}
	repeated := r.seen[uint32(run)]
	r.seen[uint32(run)] = true
	return repeated
}
