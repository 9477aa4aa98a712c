package main

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func TestMain(m *testing.M) {
	beProcessIfAsked()
	wait.InParallel() // so many faults in less time
	os.Exit(m.Run())
}

// run makes a run that fits into go test.
func run(t *testing.T, faults string, length time.Duration, adjust func(*config)) *harness {
	t.Helper()
	c := defaults()
	c.procs, c.Goroutines, c.length, c.pace = 4, 16, length, 60*time.Millisecond
	if adjust != nil {
		adjust(&c)
	}
	t.Logf("store %s, seed %d", c.Store, c.Seed)
	r, err := torture(t.Context(), c, faults)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The queue holds under all faults: all together, and groups of them.
func TestQueueHolds(t *testing.T) {
	var superseded atomic.Int64
	t.Cleanup(func() {
		if superseded.Load() == 0 {
			t.Error("nobody was superseded")
		}
	})
	for _, test := range []struct {
		faults  string
		refused bool // some arrivals may be refused
	}{
		{"all", true},
		{"disk,killguard,reload", true},
		{"replace,files,stop,killany", true},
		{"owners,files,reload", true},
		{"pause,evict", false},
	} {
		t.Run(test.faults, func(t *testing.T) {
			t.Parallel()
			r := run(t, test.faults, 8*time.Second, nil)
			t.Logf("\n%s", r)
			if !r.holds() || r.entries == 0 {
				t.Error("the queue does not hold")
			}
			if n := r.refused[outcomeOf(serializer.ReasonStorage)]; n > 0 && !test.refused {
				t.Errorf("%d were refused", n)
			}
			superseded.Add(int64(r.refused[outcomeOf(serializer.ReasonSuperseded)]))
		})
	}
}

// The harness finds the defect of each wrong store.
func TestWrongStoresAreFound(t *testing.T) {
	alone := func(c *config) { c.procs, c.pace = 1, 10*time.Millisecond } // nobody else knows the last number
	for _, test := range []struct {
		store, faults string
		found         []string // one of these
		adjust        func(*config)
	}{
		{"late", "none", []string{overlap, inversion}, nil},
		{"aging", "stop", []string{overlap, inversion}, nil},
		{"gullible", "files,stop", []string{overlap, inversion}, nil},
		{"blurred", "none", []string{overlap, inversion}, nil},
		{"sharing", "none", []string{overlap}, nil},
		{"stayer", "replace,reload", []string{overlap, inversion}, nil},
		{"forgetful", "clock,killany", []string{inversion}, alone},
		{"leaky", "pause", []string{intrusion, "not every process knows"}, nil},
		{"deaf", "pause", []string{"not every process knows"}, nil},
		{"asleep", "pause", []string{inVain}, nil},
		{"silent", "none", []string{inVain}, nil},
		{"evictor", "none", []string{evictedUnasked}, nil},
		{"patient", "replace", []string{inVain}, nil},
	} {
		t.Run(test.store+" "+test.faults, func(t *testing.T) {
			t.Parallel()
			r := run(t, test.faults, 2*time.Minute, func(c *config) {
				c.Store, c.pace, c.Patience = test.store, 30*time.Millisecond, 3*time.Second
				if test.adjust != nil {
					test.adjust(c)
				}
			})
			text := strings.Join(r.examples, "\n")
			if !slices.ContainsFunc(test.found, func(s string) bool { return r.found[s] > 0 || strings.Contains(text, s) }) {
				t.Fatalf("not found:\n%s", r)
			}
			t.Logf("found after %v and %d hand-overs: %v %s", r.took.Round(time.Millisecond), r.entries, r.found, text)
		})
	}
}
