package serializer

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// costEnv has the name of a directory in which this test binary, run again
// under strace, takes turns.
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
		t.Log("strace is not installed; TestDirectoryCallsOfATurn counts what can be counted without")
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

// costOfTurn is the processor's time for a turn while others wait. A holder that
// leaves queues again.
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

// processorTime is how long this process has been at work, on all processors.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
