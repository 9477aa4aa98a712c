package runstorage

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

var errDied = errors.New("the process died here")

// process takes runs from a storage in memory whose lock lets everybody in. The test says
// when it makes each call of the storage.
type process struct {
	certmagic.Storage // of which nothing else is called

	values map[string]string // of the storage, which processes share
	step   chan bool         // true for a call, false for the process's death
	ended  chan struct{}
	runs   []uint32
}

func (*process) Lock(context.Context, string) error   { return nil }
func (*process) Unlock(context.Context, string) error { return nil }
func (*process) String() string                       { return "memory" }

// call makes a call as soon as the test says so.
func (p *process) call(what func()) error {
	if !<-p.step {
		return errDied
	}
	what()
	return nil
}

func (p *process) Store(_ context.Context, key string, value []byte) error {
	return p.call(func() { p.values[key] = string(value) })
}

func (p *process) Load(_ context.Context, key string) (value []byte, err error) {
	ok := false
	err = p.call(func() {
		var text string
		text, ok = p.values[key]
		value = []byte(text)
	})
	if err == nil && !ok {
		err = fs.ErrNotExist
	}
	return value, err
}

func (p *process) Delete(_ context.Context, key string) error {
	return p.call(func() { delete(p.values, key) })
}

func (p *process) List(_ context.Context, prefix string, _ bool) (keys []string, err error) {
	err = p.call(func() {
		for key := range maps.Keys(p.values) {
			if path.Dir(key) == prefix {
				keys = append(keys, key)
			}
		}
	})
	return keys, err
}

func newProcess(values map[string]string, runs int) *process {
	p := &process{values: values, step: make(chan bool), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for range runs {
			run, err := Next(context.Background(), p)
			if errors.Is(err, errDied) {
				return
			}
			if err == nil {
				p.runs = append(p.runs, run)
			}
		}
	}()
	return p
}

// do lets the process make its next call, or die. It reports whether the process is alive.
func (p *process) do(call bool) bool {
	synctest.Wait() // until it has made its last call
	select {
	case p.step <- call:
		synctest.Wait()
		return true
	case <-p.ended:
		return false
	}
}

// take makes a process take runs without a break.
func take(values map[string]string, runs int) *process {
	p := newProcess(values, runs)
	for p.do(true) {
	}
	return p
}

// Processes without a lock between them, each of which may die before any call, never take
// a run twice. Their calls are made in any order.
func TestClaimsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		for seed := range uint64(3000) {
			random := rand.New(rand.NewPCG(seed, 0))
			values := make(map[string]string)
			processes := make([]*process, 2+random.IntN(3))
			for i := range processes {
				processes[i] = newProcess(values, 3)
			}
			all := slices.Clone(processes)
			for len(processes) > 0 {
				i := random.IntN(len(processes))
				// One at a time makes a few calls, so that claims are won, too.
				for alive := true; alive && random.IntN(5) > 0; {
					if alive = processes[i].do(random.IntN(100) > 0); !alive {
						processes = slices.Delete(processes, i, i+1)
					}
				}
			}
			taken += wantNoRepeat(t, "seed "+strconv.FormatUint(seed, 10), all...)
		}
		if taken < 3000 {
			t.Errorf("%d runs were taken, too few to show anything", taken)
		}
	})
}

// wantNoRepeat fails the test if a run was taken twice. It returns how many were taken.
func wantNoRepeat(t *testing.T, what string, processes ...*process) int {
	t.Helper()
	seen := make(map[uint32]bool)
	for _, p := range processes {
		for _, run := range p.runs {
			if seen[run] {
				t.Errorf("%s: run %d was given twice", what, run)
			}
			seen[run] = true
		}
	}
	return len(seen)
}

// A process sleeps before any of its calls, while others take runs, so that its own mark
// is removed. It repeats no run, and makes later processes repeat none.
func TestClaimOfASleeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for slept, awake := 0, true; awake; slept++ {
			values := make(map[string]string)
			take(values, 5)
			sleeper := newProcess(values, 2)
			for range slept {
				awake = sleeper.do(true)
			}
			others := take(values, 10)
			for sleeper.do(true) {
			}
			after := take(values, 3)
			what := "a sleep before call " + strconv.Itoa(slept)
			if len(after.runs) != 3 {
				t.Errorf("%s: %d runs were taken after it; expected 3", what, len(after.runs))
			}
			wantNoRepeat(t, what, sleeper, others, after)
		}
	})
}

// Without marks, the stored run is the first, as somebody who starts at a run wants it.
// Then marks keep it from going back, and only the last one is kept. Storages in files list
// their temporary files, too, whose names are numbers.
func TestClaimsGoOnFromStoredRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := map[string]string{nextKey: "8452\n", marks + "/1012055700": "x"}
		if p := take(values, 2); !slices.Equal(p.runs, []uint32{8452, 8453}) || values[nextKey] != "8454" {
			t.Errorf("took %v, stored %q", p.runs, values[nextKey])
		}
		values[nextKey] = "100" // put back by somebody
		if p := take(values, 1); !slices.Equal(p.runs, []uint32{8454}) {
			t.Errorf("took %v after the stored number had gone back", p.runs)
		}
		if len(values) != 4 {
			t.Errorf("the storage has %v", values)
		}
	})
}

// lockless is a storage that is none of files, so that runs must be claimed. Its lock lets
// everybody in. For files, see the tests of [uniqueid.FileRunStore].
type lockless struct{ certmagic.Storage }

func (lockless) Lock(context.Context, string) error   { return nil }
func (lockless) Unlock(context.Context, string) error { return nil }

// stored is a storage with a next run.
func stored(t *testing.T, next string) certmagic.Storage {
	t.Helper()
	storage := lockless{&certmagic.FileStorage{Path: t.TempDir()}}
	if err := storage.Store(t.Context(), nextKey, []byte(next)); err != nil {
		t.Fatal(err)
	}
	return storage
}

func TestRunsUsedUp(t *testing.T) {
	storage := stored(t, "1073741823\n")
	if run, err := Next(t.Context(), storage); err != nil || run != uniqueid.MaxRun {
		t.Errorf("the last run is %d, %v", run, err)
	}
	if _, err := Next(t.Context(), storage); !errors.Is(err, uniqueid.ErrRunsExhausted) {
		t.Errorf("error is %v", err)
	}
}

func TestStoredRunIsNoNumber(t *testing.T) {
	for _, text := range []string{"", "x", "-1\n", "1073741825\n", "1 2\n"} {
		if run, err := Next(t.Context(), stored(t, text)); err == nil || !strings.Contains(err.Error(), "want a whole number") {
			t.Errorf("%q: run %d, %v", text, run, err)
		}
	}
}

// Bug: in a storage without a root, which is the working directory, the way up to the root
// never ended, and the lock was kept.
func TestFilesWithoutRoot(t *testing.T) {
	for _, root := range []string{"", ".", "./", "below", "below/", "./below/../other"} {
		t.Chdir(t.TempDir())
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for want := range uint32(3) {
			if run, err := Next(ctx, &certmagic.FileStorage{Path: root}); err != nil || run != want {
				t.Fatalf("%q: took run %d, %v; expected %d", root, run, err, want)
			}
		}
	}
}
