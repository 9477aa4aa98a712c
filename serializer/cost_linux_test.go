package serializer

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// costEnv is the environment variable that names the directory in which this
// test binary, run again under strace, takes turns.
const costEnv = "ORDERLY_TEST_COST_DIR"

// A turn makes at most eight system calls. Those of the runtime's scheduler do not count:
// under strace, their number depends on how slow strace is.
func TestSystemCallsOfATurn(t *testing.T) {
	if dir := os.Getenv(costEnv); dir != "" {
		takeTracedTurns(t, dir)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Log("strace is not installed; TestDirectoryCallsOfATurn counts what can be counted without it")
		return
	}
	const little, much, most = 200, 1200, 8
	for _, callers := range []int{1, 32} {
		before := tracedCalls(t, strace, callers, little)
		after := tracedCalls(t, strace, callers, much)
		each := float64(after-before) / (much - little)
		t.Logf("%d callers: %.2f system calls a turn", callers, each)
		if each > most {
			t.Errorf("with %d callers, a turn makes %.2f system calls, more than %d", callers, each, most)
		}
	}
}

// crowdedTurns takes n turns with many callers.
func crowdedTurns(t testing.TB, e Engine, callers, n int) {
	var done sync.WaitGroup
	for range callers {
		done.Go(func() { turns(t, e, n/callers) })
	}
	done.Wait()
}

func takeTracedTurns(t *testing.T, dir string) {
	callers, _ := strconv.Atoi(os.Getenv(costEnv + "_CALLERS"))
	n, _ := strconv.Atoi(os.Getenv(costEnv + "_TURNS"))
	e := openFile(t, dir)
	crowdedTurns(t, e, callers, n)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// tracedCalls counts the system calls of a process that takes turns.
func tracedCalls(t *testing.T, strace string, callers, n int) (sum int) {
	t.Helper()
	table := filepath.Join(t.TempDir(), "calls")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-c", "-U", "calls,name", "-o", table,
		os.Args[0], "-test.run=^TestSystemCallsOfATurn$")
	cmd.Env = append(os.Environ(), costEnv+"="+t.TempDir(),
		costEnv+"_CALLERS="+strconv.Itoa(callers), costEnv+"_TURNS="+strconv.Itoa(n))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
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

// schedulers are the system calls with which the runtime puts threads to sleep
// and wakes them, and strace's own last line. On systems of 32 bits, the futex
// has another name: counted, it made the test fail there.
var schedulers = map[string]bool{
	"futex": true, "futex_time64": true, "nanosleep": true, "sched_yield": true, "epoll_pwait": true, "tgkill": true,
	"rt_sigreturn": true, "getpid": true, "total": true,
}

// The cost of a turn hardly depends on the number of waiters. The remaining difference is
// the machine's: thousands of callers need more memory than its caches hold. An engine
// whose cost grows with the waiters would be far off: 8,000 are 160 times 50. The test
// measures CPU time, which other processes do not affect.
func TestTurnsDoNotGrowWithTheQueue(t *testing.T) {
	const few, many, most, rounds = 50, 8000, 10, 3
	file, _ := openCounted(t)
	for _, e := range []Engine{NewMemory(MemoryOptions{}), file} {
		short, long := time.Hour, time.Hour
		for range rounds {
			short, long = min(short, costOfTurn(t, e, few)), min(long, costOfTurn(t, e, many))
		}
		ratio := float64(long) / float64(short)
		t.Logf("%T: a turn takes %v with %d waiting and %v with %d, %.2f times as much", e, short, few, long, many, ratio)
		if ratio > most {
			t.Errorf("%T: with %d waiting, a turn costs %.1f times what it does with %d", e, many, ratio, few)
		}
	}
}

// costOfTurn returns the CPU time of a turn while others wait. A holder that
// leaves joins the queue again.
func costOfTurn(t *testing.T, e Engine, waiting int) time.Duration {
	const counted = 2000
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector's work is not the engine's
	holder := enter(t, e, arrivalFor(time.Minute))
	over, end := context.WithCancel(t.Context())
	defer end()
	var used time.Duration
	var began atomic.Int64
	var passed atomic.Int64
	var done sync.WaitGroup
	for range waiting {
		done.Go(func() {
			for over.Err() == nil {
				turn, err := e.Enter(over, arrivalFor(time.Minute))
				if err != nil {
					return
				}
				if passed.Add(1) == counted {
					used = time.Duration(int64(processorTime()) - began.Load())
					end()
				}
				turn.Leave()
			}
		})
	}
	awaitQueue(t, e, waiting+1)
	began.Store(int64(processorTime()))
	holder.Leave()
	done.Wait()
	return used / counted
}

// processorTime returns the CPU time that this process has used, on all
// processors.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sum counts a use of the guard as three calls: lock, check and unlock.
func (c *dirCalls) sum() int64 {
	return 3*c.guard.Load() + c.changes.Load() + c.last.Load() + c.setLast.Load() + c.create.Load() + c.remove.Load()
}

// These bounds apply to a system that reports what changed in a directory.

// A turn makes seven calls to the directory; with many callers, some of them
// share the guard.
func TestDirectoryCallsOfATurn(t *testing.T) {
	const n = 2048
	for _, c := range []struct{ callers, most int }{{1, 8}, {32, 8}} {
		e, calls := openCounted(t)
		turns(t, e, 10) // opens the directory
		before := calls.sum()
		crowdedTurns(t, e, c.callers, n)
		if each := float64(calls.sum()-before) / n; each > float64(c.most) {
			t.Errorf("with %d callers, a turn makes %.2f calls, more than %d", c.callers, each, c.most)
		}
		// The issuing goroutine may remove the last ones for others.
		wait.Until(t, "as many lock files are removed as were made", func() bool { return calls.create.Load() == calls.remove.Load() })
	}
}

// The bounds are just above the current values, so that a new allocation is noticed.
func TestAllocationsOfATurn(t *testing.T) {
	if raceDetector {
		return // the race detector allocates, too
	}
	file, _ := openCounted(t)
	for _, c := range []struct {
		name   string
		engine Engine
		most   float64
	}{
		{"memory", NewMemory(MemoryOptions{}), 3},
		{"file", file, 6},
	} {
		turns(t, c.engine, 10)
		if n := testing.AllocsPerRun(2000, func() { turns(t, c.engine, 1) }); n > c.most {
			t.Errorf("%s: a turn allocates %.1f times, more than %.0f", c.name, n, c.most)
		}
	}
}

// A waiter takes at most 2 KiB of the heap.
func TestMemoryOfOneWhoWaits(t *testing.T) {
	const crowd, most = 2000, 2 << 10
	file, _ := openCounted(t)
	for _, e := range []Engine{NewMemory(MemoryOptions{}), file} {
		turns(t, e, 10)
		turn := enter(t, e, arrival("a_"))
		before := heap()
		var done sync.WaitGroup
		gone, leave := context.WithCancel(t.Context())
		for range crowd {
			done.Go(func() { _, _ = e.Enter(gone, arrivalFor(time.Minute)) })
		}
		awaitQueue(t, e, crowd+1)
		each := (heap() - before) / crowd
		leave()
		done.Wait()
		turn.Leave()
		if each > most {
			t.Errorf("%T: a waiter takes %d bytes, more than %d", e, each, most)
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
