//go:build windows || darwin || dragonfly || freebsd || netbsd || openbsd

package serializer

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The system signals new and removed files, even while nobody waits for a signal.
func TestChangeSignal(t *testing.T) {
	dir := t.TempDir()
	signal := openSignal(t, dir)
	defer signal.close()
	file := filepath.Join(dir, "a_")
	for _, step := range []struct {
		name    string
		change  func()
		changed bool
	}{
		{"nothing", func() {}, false},
		{"a file came", func() { touch(t, dir, "a_") }, true},
		{"nothing since", func() {}, false},
		{"a file went", func() { _ = os.Remove(file) }, true},
		{"a file came meanwhile", func() { time.AfterFunc(50*time.Millisecond, func() { touch(t, dir, "b_") }) }, true},
		{"interrupted", signal.interrupt, false},
	} {
		step.change()
		if changed := waitForChange(t, signal, step.changed); changed != step.changed {
			t.Errorf("%s: changed is %v; expected %v", step.name, changed, step.changed)
		}
	}
}

// waitForChange waits for a change, for long only if there should be one. A system may
// signal one change twice.
func waitForChange(t *testing.T, signal changeSignal, expected bool) (changed bool) {
	t.Helper()
	timeout := 100 * time.Millisecond
	if expected {
		timeout = 20 * time.Second
	}
	changed, err := signal.wait(timeout)
	if err != nil {
		t.Fatal(err)
	}
	for again := changed; again; {
		if again, err = signal.wait(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	return changed
}

// Both an interruption of a wait and one before it end the wait. After the end, an
// interruption does nothing.
func TestChangeSignalIsInterrupted(t *testing.T) {
	signal := openSignal(t, t.TempDir())
	for _, interrupt := range []func(){
		signal.interrupt,
		func() { time.AfterFunc(50*time.Millisecond, signal.interrupt) },
		func() { signal.interrupt(); signal.interrupt() },
	} {
		interrupt()
		start := time.Now()
		if _, err := signal.wait(time.Minute); err != nil || time.Since(start) > 30*time.Second {
			t.Errorf("the wait took %v, error %v", time.Since(start), err)
		}
	}
	signal.close()
	signal.interrupt()
}

// soleSignal waits for the signal alone, and ignores the interval between
// polls.
type soleSignal struct{ changeSignal }

func (s soleSignal) wait(time.Duration) (changed bool, err error) {
	return s.changeSignal.wait(time.Minute)
}

// Without polling, a waiter notices that another process has left.
func TestWaiterHearsTheSignal(t *testing.T) {
	dir := t.TempDir()
	one, two := openFile(t, dir), openFile(t, dir)
	two.open = func(path string, clock func() time.Time) (lockDir, error) {
		opened, err := openLockDir(path, clock)
		if err != nil {
			return nil, err
		}
		d := opened.(*osDir)
		d.polls.signal = soleSignal{d.polls.signal}
		return d, nil
	}
	defer one.Close()
	defer two.Close()
	for range 10 {
		holder := enter(t, one, arrival("a_"))
		waiting := join(t, two, arrival("a_"))
		holder.Leave()
		get(t, waiting).Leave()
	}
}

// openSignal opens a directory and takes over its signal.
func openSignal(t *testing.T, dir string) changeSignal {
	t.Helper()
	opened, err := openLockDir(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.close)
	polls := &opened.(*osDir).polls
	signal := polls.signal
	if signal == nil {
		t.Fatal("no signal")
	}
	polls.signal = nil
	return signal
}
