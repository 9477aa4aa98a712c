package serializer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// machine is a computer that loses, in a power failure, what was not written to its
// disk. Of the guard file, it keeps what the file held when somebody last waited
// for the disk, or anything newer.
type machine struct {
	starts int

	mu   sync.Mutex
	disk []byte // the guard file, as it certainly is on the disk
}

// forgetful is a directory on such a machine.
type forgetful struct {
	lockDir
	machine *machine
	guard   string
}

func (f *forgetful) confirm(bound uint64) error {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	before, err := os.ReadFile(f.guard)
	if err == nil {
		err = f.lockDir.confirm(bound)
	}
	if err == nil {
		f.machine.disk = before
	}
	return err
}

// open opens a directory after the machine's latest start.
func (m *machine) open(path string, clock func() time.Time) (lockDir, error) {
	opened, err := openLockDir(path, clock)
	if err != nil {
		return nil, err
	}
	opened.(*osDir).boot = fmt.Sprintf("start %d", m.starts)
	return &forgetful{opened, m, filepath.Join(path, guardFile)}, nil
}

// fail is a power failure: no process has time to leave.
func (m *machine) fail(t *testing.T, dir string, newer bool) {
	t.Helper()
	m.starts++
	for _, name := range filesOf(t, dir) {
		if name != guardFile {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if newer {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, guardFile), m.disk, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Bug: after a power failure, and with a clock that was behind, numbers were issued
// twice. The last number was in the guard file, but not on the disk.
func TestNumbersAfterPowerFailure(t *testing.T) {
	dir := t.TempDir()
	m := new(machine)
	now := time.Now()
	var last uint64
	for failure := range 30 {
		var engines []*File
		for range 2 {
			e := openAt(t, dir, 0)
			e.clock, e.open = func() time.Time { return now }, m.open
			engines = append(engines, e)
		}
		for turn := range 1 + rand.IntN(30) {
			now = now.Add(time.Duration(rand.Int64N(int64(reserveTime / 4))))
			got := enter(t, engines[rand.IntN(2)], arrival("a_"))
			if got.Token() <= last {
				t.Fatalf("after %d power failures, turn %d has token %d after %d", failure, turn, got.Token(), last)
			}
			last = got.Token()
			got.Leave()
		}
		for _, e := range engines {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		m.fail(t, dir, rand.IntN(2) == 0)
		now = now.Add(-time.Duration(rand.Int64N(int64(time.Hour))))
	}
}

// A process that comes later, or has closed its directory in between, trusts what another
// has flushed to the disk. So waiting for the disk is rare.
func TestDiskIsNotWaitedForOften(t *testing.T) {
	dir := t.TempDir()
	var waits atomic.Int64
	for range 20 {
		e := openAt(t, dir, 0)
		e.open = func(path string, clock func() time.Time) (lockDir, error) {
			d, err := openLockDir(path, clock)
			return &disky{d, &waits}, err
		}
		turns(t, e, 50)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if waits.Load() > 3 { // one, and more on a machine that takes a minute for this
		t.Errorf("waited %d times for the disk", waits.Load())
	}
}

// disky counts how often somebody waits for the disk.
type disky struct {
	lockDir
	waits *atomic.Int64
}

func (d *disky) confirm(bound uint64) error {
	d.waits.Add(1)
	return d.lockDir.confirm(bound)
}
