package lockfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// costEnv is the environment variable that names the directory in which this test binary,
// run again under strace, takes turns.
const costEnv = "ORDERLY_TEST_COST_DIR"

// A turn makes at most eight system calls. With other engines, there is one more, which reads the
// last number, and theirs: they learn of the turn when it is over. Those of the runtime's scheduler do not count: under strace, their number
// depends on how slow strace is.
//
// Bug: each of these made seven calls for a ticket that had come and gone. It asked all owners
// up to three times, with a call each time, and looked for the file.
func TestSystemCallsOfATurn(t *testing.T) {
	if dir := os.Getenv(costEnv); dir != "" {
		takeTracedTurns(t, dir)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is missing; install it with: apt-get install strace")
	}
	const little, much = 200, 1200
	for _, c := range []struct{ callers, others int }{{1, 0}, {32, 0}, {1, 2}} {
		before := tracedCalls(t, strace, c.callers, c.others, little)
		after := tracedCalls(t, strace, c.callers, c.others, much)
		each := float64(after-before) / (much - little)
		t.Logf("%d callers, %d other engines: %.2f system calls a turn", c.callers, c.others, each)
		most := 8.0
		if c.others > 0 {
			most += 1.5 // one more, and what the others do now and then
		}
		if each > most {
			t.Errorf("with %d callers and %d other engines, a turn makes %.2f system calls, more than %.1f", c.callers, c.others, each, most)
		}
	}
}

func takeTracedTurns(t *testing.T, dir string) {
	callers, _ := strconv.Atoi(os.Getenv(costEnv + "_CALLERS"))
	n, _ := strconv.Atoi(os.Getenv(costEnv + "_TURNS"))
	others, _ := strconv.Atoi(os.Getenv(costEnv + "_OTHERS"))
	e := serializer.New(openStore(t, dir), serializer.Options{})
	for range others {
		defer serializer.New(openStore(t, dir), serializer.Options{}).Close() // it learns of the turns at the latest now
	}
	var done sync.WaitGroup
	for range callers {
		done.Go(func() { turns(t, e, n/callers) })
	}
	done.Wait()
	must(t, e.Close())
}

func turns(t testing.TB, e *serializer.Engine, n int) {
	for range n {
		turn, err := e.Enter(context.Background(), serializer.Arrival{Queue: "a_"})
		if err != nil {
			t.Error(err)
			return
		}
		turn.Leave()
	}
}

// tracedCalls counts the system calls of a process that takes turns.
func tracedCalls(t *testing.T, strace string, callers, others, n int) (sum int) {
	t.Helper()
	table := filepath.Join(t.TempDir(), "calls")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-c", "-U", "calls,name", "-o", table,
		os.Args[0], "-test.run=^TestSystemCallsOfATurn$")
	cmd.Env = append(os.Environ(), costEnv+"="+t.TempDir(),
		costEnv+"_CALLERS="+strconv.Itoa(callers), costEnv+"_OTHERS="+strconv.Itoa(others), costEnv+"_TURNS="+strconv.Itoa(n))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	text, err := os.ReadFile(table)
	must(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || schedulers[fields[1]] {
			continue
		}
		if count, err := strconv.Atoi(fields[0]); err == nil {
			sum += count
		}
	}
	return sum
}

// schedulers are the system calls with which the runtime puts threads to sleep and wakes
// them, and strace's own last line. On systems of 32 bits, the futex has another name:
// counted, it made the test fail there.
var schedulers = map[string]bool{
	"futex": true, "futex_time64": true, "nanosleep": true, "sched_yield": true, "epoll_pwait": true, "tgkill": true,
	"rt_sigreturn": true, "getpid": true, "total": true,
}

// A waiter takes at most 2 KiB of the heap. Its words and its file lie elsewhere. Those who
// give up leave nothing.
func TestMemoryOfOneWhoWaits(t *testing.T) {
	const crowd, most = 2000, 2 << 10
	dir := t.TempDir()
	e := open(t, dir)
	turns(t, e.Engine, 10)
	holder := enter(t, e, "a_")
	before := heap()
	gone, leave := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for range crowd {
		done.Go(func() {
			if _, err := e.Enter(gone, arrival("a_")); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	wait.Until(t, "all wait", func() bool { _, waiting := e.Count("a_"); return waiting == crowd })
	each := (heap() - before) / crowd
	t.Logf("a waiter takes %d bytes", each)
	if each > most {
		t.Errorf("a waiter takes %d bytes, more than %d", each, most)
	}
	leave()
	done.Wait()
	holder.Leave()
	wait.Until(t, "all files are gone", func() bool { return len(filesWith(t, dir, "a_")) == 0 })
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Bug: Close did not wait for the file of a finished ticket that another goroutine was
// about to remove. A process that ended then left it behind.
func TestCloseWaitsForRemovals(t *testing.T) {
	t.Parallel()
	for range 50 {
		dir := t.TempDir()
		e := open(t, dir)
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() { turns(t, e.Engine, 3) })
		}
		done.Wait()
		must(t, e.Close())
		if files := filesWith(t, dir, "a_"); len(files) != 0 {
			t.Fatalf("closed, and left in the lock directory: %q", files)
		}
	}
}

// How long a turn takes from one process to the next.
func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir()
	testlease.HandOver(b, func() *serializer.Engine { return open(b, dir).Engine })
}
