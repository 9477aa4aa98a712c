package storedruns

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// memory is a storage in memory.
type memory struct {
	certmagic.Storage // of which nothing else is called

	lock   sync.Mutex // what processes hold
	mu     sync.Mutex // guards values
	values map[string]string
}

func newMemory() *memory { return &memory{values: make(map[string]string)} }

func (m *memory) String() string { return "memory" }

func (m *memory) Lock(context.Context, string) error {
	m.lock.Lock()
	return nil
}

func (m *memory) Unlock(context.Context, string) error {
	m.lock.Unlock()
	return nil
}

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

// failing is a storage of a process that dies before one of its calls.
type failing struct {
	*memory
	calls int // until then
}

var errDied = errors.New("the process died here")

func (f *failing) await() error {
	if f.calls--; f.calls < 0 {
		return errDied
	}
	return nil
}

func (f *failing) Store(ctx context.Context, key string, value []byte) error {
	if err := f.await(); err != nil {
		return err
	}
	return f.memory.Store(ctx, key, value)
}

func (f *failing) Load(ctx context.Context, key string) ([]byte, error) {
	if err := f.await(); err != nil {
		return nil, err
	}
	return f.memory.Load(ctx, key)
}

// Many processes share a storage, and die before any of their calls. No run comes twice.
func TestRunsOfManyProcesses(t *testing.T) {
	m := newMemory()
	var seen sync.Map
	var all sync.WaitGroup
	for process := range 100 {
		all.Go(func() {
			storage := &failing{m, process}
			for {
				run, err := Next(t.Context(), storage)
				if err != nil {
					if !errors.Is(err, errDied) {
						t.Error(err)
					}
					return
				}
				if _, again := seen.LoadOrStore(run, true); again {
					t.Errorf("run %d was given twice", run)
				}
			}
		})
	}
	all.Wait()
}

// The stored run is the first, as somebody who starts at a run wants it.
func TestGoesOnFromStoredRun(t *testing.T) {
	m := newMemory()
	m.values[nextKey] = "8452\n"
	for want := range uint32(2) {
		if run, err := Next(t.Context(), m); err != nil || run != 8452+want {
			t.Errorf("took %d, %v", run, err)
		}
	}
	if m.values[nextKey] != "8454" {
		t.Errorf("stored %q", m.values[nextKey])
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
