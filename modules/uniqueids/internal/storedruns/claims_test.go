package storedruns

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// memory is a storage in memory whose lock lets everybody in.
type memory struct {
	certmagic.Storage // of which nothing else is called

	mu     sync.Mutex
	values map[string]string
}

func newMemory() *memory { return &memory{values: make(map[string]string)} }

func (m *memory) Lock(context.Context, string) error   { return nil }
func (m *memory) Unlock(context.Context, string) error { return nil }
func (m *memory) String() string                       { return "memory" }

func (m *memory) Store(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = string(value)
	return nil
}

func (m *memory) Load(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(value), nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}

func (m *memory) List(_ context.Context, prefix string, _ bool) (keys []string, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.values {
		if path.Dir(key) == prefix {
			keys = append(keys, key)
		}
	}
	if keys == nil {
		return nil, fs.ErrNotExist
	}
	return keys, nil
}

// stepped lets a test say when each call of a storage is made.
type stepped struct {
	*memory
	step chan bool // true for a call, false for the process's death
}

var errDied = errors.New("the process died here")

func (s stepped) await() error {
	if !<-s.step {
		return errDied
	}
	return nil
}

func (s stepped) Store(ctx context.Context, key string, value []byte) error {
	if err := s.await(); err != nil {
		return err
	}
	return s.memory.Store(ctx, key, value)
}

func (s stepped) Load(ctx context.Context, key string) ([]byte, error) {
	if err := s.await(); err != nil {
		return nil, err
	}
	return s.memory.Load(ctx, key)
}

func (s stepped) Delete(ctx context.Context, key string) error {
	if err := s.await(); err != nil {
		return err
	}
	return s.memory.Delete(ctx, key)
}

func (s stepped) List(ctx context.Context, prefix string, recursive bool) ([]string, error) {
	if err := s.await(); err != nil {
		return nil, err
	}
	return s.memory.List(ctx, prefix, recursive)
}

// taker is a process that takes runs from a storage, one call at a time.
type taker struct {
	step  chan bool
	ended chan struct{}
	runs  []uint32
}

func newTaker(m *memory, runs int) *taker {
	p := &taker{step: make(chan bool), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for range runs {
			run, err := Next(context.Background(), stepped{m, p.step})
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

// do lets the process make its next call, or die. It reports whether the
// process is alive.
func (p *taker) do(call bool) bool {
	select {
	case p.step <- call:
		return true
	case <-p.ended:
		return false
	}
}

// finish lets the process make all its calls.
func (p *taker) finish() {
	for p.do(true) {
	}
}

// Processes without a lock between them, each of which may die before any
// call, never take a run twice. Their calls are made in any order.
func TestClaimsInAnyOrder(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0))
		m := newMemory()
		processes := make([]*taker, 2+random.IntN(3))
		for i := range processes {
			processes[i] = newTaker(m, 3)
		}
		all := slices.Clone(processes)
		for len(processes) > 0 {
			i := random.IntN(len(processes))
			if !processes[i].do(random.IntN(100) > 0) {
				processes = slices.Delete(processes, i, i+1)
			}
		}
		wantNoRepeat(t, "seed "+strconv.FormatUint(seed, 10), all)
	}
}

func wantNoRepeat(t *testing.T, what string, processes []*taker) {
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
}

// A process sleeps before any of its calls, while others take so many runs that
// its own marks are removed. It repeats no run, and makes later processes
// repeat none.
func TestClaimOfASleeper(t *testing.T) {
	for slept := 0; ; slept++ {
		m := newMemory()
		newTaker(m, 5).finish()
		sleeper := newTaker(m, 2)
		awake := true
		for range slept {
			awake = sleeper.do(true) && awake
		}
		others := newTaker(m, 3*keptMarks)
		others.finish()
		sleeper.finish()
		after := newTaker(m, 3)
		after.finish()
		if len(after.runs) != 3 {
			t.Errorf("a sleep before call %d: %d runs were taken after it; expected 3", slept, len(after.runs))
		}
		wantNoRepeat(t, "a sleep before call "+strconv.Itoa(slept), []*taker{sleeper, others, after})
		if !awake {
			return // it had no call left
		}
	}
}

// Marks do not grow without bound.
func TestMarksAreRemoved(t *testing.T) {
	m := newMemory()
	newTaker(m, 10*keptMarks).finish()
	if len(m.values) > 2*(keptMarks+2)+1 {
		t.Errorf("%d keys are left of %d runs", len(m.values), 10*keptMarks)
	}
}

// Storages in files list their temporary files, too, whose names are numbers.
func TestTemporaryFilesAreNoMarks(t *testing.T) {
	m := newMemory()
	m.values[taken+"/212055700"] = "x"
	m.values[taken+"/1012055700"] = "x"
	p := newTaker(m, 2)
	p.finish()
	if !slices.Equal(p.runs, []uint32{0, 1}) {
		t.Errorf("took %v", p.runs)
	}
}

// Without claims, the stored run is the first, as somebody who starts at a run wants it.
func TestClaimsGoOnFromStoredRun(t *testing.T) {
	m := newMemory()
	m.values[nextKey] = "8452\n"
	p := newTaker(m, 2)
	p.finish()
	if !slices.Equal(p.runs, []uint32{8452, 8453}) || m.values[nextKey] != "8454" {
		t.Errorf("took %v, stored %q", p.runs, m.values[nextKey])
	}
	m.values[nextKey] = "100" // put back by somebody
	q := newTaker(m, 1)
	q.finish()
	if !slices.Equal(q.runs, []uint32{8454}) {
		t.Errorf("took %v after the stored number had gone back", q.runs)
	}
}

func TestRunsUsedUp(t *testing.T) {
	dir := t.TempDir()
	for kind, storage := range storages {
		storage := storage(dir + "/" + kind)
		if err := storage.Store(t.Context(), nextKey, []byte("1073741823\n")); err != nil {
			t.Fatal(err)
		}
		if run, err := Next(t.Context(), storage); err != nil || run != uniqueid.MaxRun {
			t.Errorf("%s: the last run is %d, %v", kind, run, err)
		}
		if _, err := Next(t.Context(), storage); !errors.Is(err, uniqueid.ErrRunsExhausted) {
			t.Errorf("%s: error is %v", kind, err)
		}
	}
}

func TestStoredRunIsNoNumber(t *testing.T) {
	for kind, storage := range storages {
		for _, text := range []string{"", "x", "-1\n", "1073741825\n", "1 2\n"} {
			storage := storage(t.TempDir())
			if err := storage.Store(t.Context(), nextKey, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if run, err := Next(t.Context(), storage); err == nil || !strings.Contains(err.Error(), "want a whole number") {
				t.Errorf("%s, %q: run %d, %v", kind, text, run, err)
			}
		}
	}
}
