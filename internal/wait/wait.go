// Package wait lets tests wait for what happens in other goroutines and processes: for a
// condition with a deadline, and never for a fixed time.
package wait

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// InParallel lets more tests run in parallel than there are processors, for those that
// mostly wait. The flag -parallel has precedence. Call it in TestMain.
func InParallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0)))
	}
}

// Patience is how long a test waits for an event without a promised time. It is long
// because machines under load are slow.
const Patience = time.Minute

// The time between two calls that check a condition grows with the time waited, and with the time that a
// call takes, because checks may need the processor that others wait for.
const (
	shortest      = 2 * time.Millisecond
	longest       = 20 * time.Millisecond
	longestOfSlow = 100 * time.Millisecond
)

// Until waits until a condition holds, and fails the test when Patience has passed.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Poll(Patience, holds) {
		t.Fatalf("waited in vain for %v until %s", Patience, what)
	}
}

// Eventually calls try until it returns nil. It fails the test with the last error when
// Patience has passed.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	var err error
	if !Poll(Patience, func() bool { err = try(); return err == nil }) {
		t.Fatalf("waited in vain for %v until %s: %v", Patience, what, err)
	}
}

// Poll reports whether a condition holds before a limit has passed.
func Poll(limit time.Duration, holds func() bool) bool {
	for start, begun := time.Now(), time.Now(); !holds(); begun = time.Now() {
		took, waited := time.Since(begun), time.Since(start)
		if waited > limit {
			return false
		}
		time.Sleep(max(min(max(waited/10, shortest), longest), min(4*took, longestOfSlow)))
	}
	return true
}
