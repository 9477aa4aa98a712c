package storedruns

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// After a process had died while it held the lock of the storage, several
// contenders got the lock at once, for certmagic lets more than one clear a stale
// lock away: 45 of 995 recoveries gave one run to two.
func TestRecoverFromKilledHolder(t *testing.T) {
	for _, tt := range []struct {
		kind        string
		short, long int // how many recoveries
	}{
		{"files", 30, 10_000},
		{"lockless", 30, 10_000},
		{"other", 3, 500}, // contenders look for the lock once a second
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
			t.Logf("%d recoveries in %v: %d runs, %d times no run, %d kills without the lock",
				recoveries, time.Since(began).Round(time.Second), len(r.seen), r.none, r.missed)
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
	contenders []*process
	seen       map[uint32]bool
	repeated   int // recoveries in which a run came twice
	none       int // answers without a run
	missed     int // victims that did not hold the lock when they died
}

// contenders is how many processes find the lock stale at once.
const contenders = 16

func newRecovery(t *testing.T, kind string) *recovery {
	r := &recovery{kind: kind, dir: t.TempDir(), seen: make(map[uint32]bool)}
	for range contenders {
		r.contenders = append(r.contenders, r.start(t, "contender"))
	}
	return r
}

// process is one that the test has started.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (r *recovery) start(t *testing.T, role string) *process {
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
	return &process{cmd, in, bufio.NewReader(out)}
}

// killHolder kills a process that takes one run after the other, at a random
// moment, until one dies with the lock.
func (r *recovery) killHolder(t *testing.T) {
	t.Helper()
	for {
		victim := r.start(t, "victim")
		repeated := r.read(t, victim)
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if err := victim.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
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
		if r.kind == "lockless" || r.lockIsStale(t) {
			return
		}
		r.missed++
	}
}

// lockIsStale tells whether there is a lock of the storage that its holder has
// left, and makes it as old as it must be to be taken for stale.
func (r *recovery) lockIsStale(t *testing.T) bool {
	t.Helper()
	path := filepath.Join(r.dir, "locks", lockName+".lock")
	if _, err := os.Stat(path); err != nil {
		return false
	}
	old := time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
	text := fmt.Sprintf("{%q:%q,%q:%q}\n", "created", old, "updated", old)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return true
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
func (r *recovery) read(t *testing.T, p *process) bool {
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
