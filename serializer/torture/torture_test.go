//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if isProcess() {
		os.Exit(beProcess())
	}
	os.Exit(m.Run())
}

// short is a run that fits into go test.
func short(t *testing.T) config {
	c := defaults()
	c.procs, c.goroutines = 4, 16
	c.handovers, c.limit = 1<<20, 8*time.Second
	c.pace = 60 * time.Millisecond
	c.quiet = !testing.Verbose()
	t.Logf("go run ./serializer/torture -seed %d -procs %d -goroutines %d -limit %v -pace %v", c.seed, c.procs, c.goroutines, c.limit, c.pace)
	return c
}

func run(t *testing.T, c config) *report {
	t.Helper()
	r, err := torture(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The queue holds under all faults that need no separate file system.
func TestQueueHolds(t *testing.T) {
	r := run(t, short(t))
	t.Logf("\n%s", r)
	if !r.holds() {
		t.Error("the queue does not hold")
	}
	if r.judge.entries == 0 {
		t.Error("nothing happened")
	}
}

// While a queue is paused, nobody enters it. Waiters keep their places, and continue
// after the pause. With drop_oldest, only superseded arrivals are refused. This is so
// alone, and while processes are killed and reload.
func TestPausesAndSupersedingHold(t *testing.T) {
	for _, faults := range []string{"pause", "supersede", "pause,supersede,kill,killguard,reload,cancel,timeout"} {
		t.Run(faults, func(t *testing.T) {
			c := short(t)
			c.limit = 6 * time.Second
			c.faults = strings.Split(faults, ",")
			r := run(t, c)
			t.Logf("\n%s", r)
			if !r.holds() {
				t.Error("the queue does not hold")
			}
			if c.has("pause") && len(r.judge.pauses.spans) == 0 {
				t.Error("nothing was paused")
			}
			if c.has("supersede") && r.counts[superseded] == 0 {
				t.Error("nobody was superseded")
			}
			if refused := r.counts[storage] + r.counts[other]; !c.has("kill") && refused > 0 {
				t.Errorf("%d were refused", refused)
			}
		})
	}
}

// A small disk needs a mount, and so root and a namespace. Then the harness is a separate
// program.
func TestQueueHoldsOnFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root: sudo go test ./serializer/torture")
	}
	program := build(t)
	out, err := exec.Command(program, "-quiet", "-procs", "4", "-goroutines", "16", "-limit", "4s",
		"-handovers", "1000000", "-pace", "60ms", "-faults", "inodes,bytes,killguard,reload").CombinedOutput()
	t.Logf("\n%s", out)
	if err != nil && !strings.Contains(string(out), "holds, but") {
		t.Error(err)
	}
	if thrown := field(string(out), "faults"); !strings.Contains(thrown, "inodes") && !strings.Contains(thrown, "bytes") {
		t.Error("the disk was never full")
	}
}

func build(t *testing.T, flags ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "torture")
	args := slices.Concat([]string{"build", "-o", program}, flags, []string{"."})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return program
}

// The harness detects the predecessor's overlaps. That only takes many arrivals at once
// in an empty queue, again and again; a clock step makes it certain.
func TestPredecessorIsFound(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults []string
		limit  time.Duration
		tries  int
	}{
		{"CrowdsOnly", nil, 500 * time.Millisecond, 60},
		{"ClockSteps", []string{"clock"}, 20 * time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			start, seen := time.Now(), 0
			for range test.tries {
				c := short(t)
				c.engine, c.faults, c.limit, c.stop = "predecessor", test.faults, test.limit, "overlap"
				r := run(t, c)
				seen += r.judge.entries
				if r.judge.found.overlaps > 0 {
					t.Logf("after %v: %d overlaps in %d hand-overs", time.Since(start).Round(time.Millisecond), r.judge.found.overlaps, seen)
					return
				}
			}
			t.Errorf("no overlap was found in %d hand-overs", seen)
		})
	}
}

// The harness detects the defect of each mutant.
func TestMutantsAreFound(t *testing.T) {
	program := build(t, "-tags", "mutants")
	for _, mutant := range []struct{ name, faults, found string }{
		{"noguard", "none", "overlaps"},
		{"nocheck", "replace,reload", "overlaps"},
		{"nolast", "clock,reload", "inversions"},
		{"noledger", "files", "overlaps"},
		{"nocheck", "links,reload", "overlaps"},
		{"leaky", "pause", "intrusions"},
		{"nopause", "pause", "late entries"},
		{"noresume", "pause", "lost"},
		{"hasty", "supersede", "wronged"},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			var out []byte
			found := false
			for try := 0; try < 3 && !found; try++ { // a run may throw too few faults
				var err error
				out, err = exec.Command(program, "-engine", mutant.name, "-faults", mutant.faults, "-stop", stopAt(mutant.found), "-quiet",
					"-procs", "4", "-goroutines", "16", "-pace", "30ms", "-limit", limitOf(mutant.found), "-handovers", "1000000").CombinedOutput()
				var exit *exec.ExitError
				found = errors.As(err, &exit) && exit.ExitCode() == 1 && count(string(out), mutant.found) > 0
			}
			if !found {
				t.Errorf("not found\n%s", out)
			}
			if stopAt(mutant.found) != "" && mutant.faults != "none" && !strings.Contains(string(out), "fault ") {
				t.Errorf("the report does not say which faults were in progress\n%s", out)
			}
		})
	}
}

// stopAt returns the finding at which a run can stop; other findings are known only at
// the end.
func stopAt(found string) string {
	switch found {
	case "overlaps", "inversions", "intrusions":
		return strings.TrimSuffix(found, "s")
	}
	return ""
}

// limitOf is how long a run may take.
func limitOf(found string) string {
	if stopAt(found) == "" {
		return "6s"
	}
	return "20s"
}

// The harness detects processes that shut others out for ever: here, those of other
// users.
func TestShutOutIsFound(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming other users needs root: sudo go test ./serializer/torture")
	}
	out, err := exec.Command(build(t, "-tags", "mutants"), "-engine", "nogroup", "-faults", "users", "-quiet",
		"-procs", "4", "-goroutines", "16", "-pace", "30ms", "-limit", "3s", "-handovers", "1000000").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || count(string(out), "lost") == 0 {
		t.Errorf("not found: %v\n%s", err, out)
	}
}

// count reads a number from a report.
func count(report, name string) (n int) {
	fmt.Sscan(field(report, name), &n)
	return n
}

// field reads a line of a report.
func field(report, name string) string {
	for line := range strings.Lines(report) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return rest
		}
	}
	return ""
}
