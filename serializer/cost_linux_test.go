package serializer

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// costEnv has the name of a directory in which this test binary, run again
// under strace, takes turns.
const costEnv = "ORDERLY_TEST_COST_DIR"

// A turn makes at most eight system calls. Those of the runtime's scheduler do
// not count: under strace, their number tells how slow strace is.
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
// and wakes them, and strace's own last line.
var schedulers = map[string]bool{
	"futex": true, "nanosleep": true, "sched_yield": true, "epoll_pwait": true, "tgkill": true,
	"rt_sigreturn": true, "getpid": true, "total": true,
}
