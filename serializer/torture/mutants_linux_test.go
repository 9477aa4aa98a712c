package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testmutant"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// Mutants are stores of lock files with one deliberate defect each, which the harness
// must find.

func init() {
	for name, mutate := range map[string]func(*process, *testmutant.Store){
		"gullible": gullible,
		"silent":   silent,
		"leaky":    leaky,
		"evictor":  evictor,
		"sharing":  sharing,
	} {
		openers[name] = func(p *process) (serializer.Store, error) { return p.openMutant(mutate) }
	}
	openers["forgetful"] = openForgetful
	openers["stayer"] = openStayer
}

func (p *process) openMutant(mutate func(*process, *testmutant.Store)) (serializer.Store, error) {
	s, err := openLockfile(p)
	if err != nil {
		return nil, err
	}
	return testmutant.New(s, func(m *testmutant.Store) { mutate(p, m) }), nil
}

// gullible takes every lock file that disappears for one that its owner has removed.
func gullible(p *process, m *testmutant.Store) {
	appeared := m.Events.OnAppeared
	m.Events.OnAppeared = func(t *serializer.Ticket) {
		appeared(t)
		path := filepath.Join(p.Dir, t.Key)
		var look func()
		look = func() {
			if _, err := os.Lstat(path); err != nil {
				m.Events.OnVanished(t)
				return
			}
			time.AfterFunc(5*time.Millisecond, look)
		}
		time.AfterFunc(5*time.Millisecond, look)
	}
}

// silent does not report some tickets that other processes have removed.
func silent(_ *process, m *testmutant.Store) {
	vanished := m.Events.OnVanished
	m.Events.OnVanished = func(t *serializer.Ticket) {
		if rand.IntN(1000) > 0 {
			vanished(t)
		}
	}
}

// sharing does not report who has which slot.
func sharing(_ *process, m *testmutant.Store) {
	appeared := m.Events.OnAppeared
	m.Events.OnAppeared = func(t *serializer.Ticket) {
		if !strings.HasPrefix(t.Queue, "%=") {
			appeared(t)
		}
	}
}

// leaky ends pauses too early.
func leaky(_ *process, m *testmutant.Store) {
	paused := m.Events.OnPaused
	m.Events.OnPaused = func(name string, until time.Time) {
		paused(name, until)
		if !until.IsZero() {
			time.AfterFunc(500*time.Millisecond, func() { paused(name, time.Time{}) })
		}
	}
}

// evictor evicts some tickets that nobody wanted to be evicted.
func evictor(_ *process, m *testmutant.Store) {
	joined := m.Events.OnJoined
	m.Events.OnJoined = func(t *serializer.Ticket) bool {
		if rand.IntN(1000) == 0 {
			time.AfterFunc(time.Millisecond, func() { m.Events.Evict(t.Queue, t.Number) })
		}
		return joined(t)
	}
}

// openStayer opens a store that never notices that its directory was replaced.
func openStayer(p *process) (serializer.Store, error) {
	d, err := unix.Open(p.Dir, unix.O_PATH|unix.O_CLOEXEC, 0) // it stays open
	if err != nil {
		return nil, err
	}
	return lockfile.Open(fmt.Sprintf("/proc/self/fd/%d", d), lockfile.Options{Clock: p.clock})
}

// openForgetful opens a store without the last number of the stores before.
func openForgetful(p *process) (serializer.Store, error) {
	_ = os.Truncate(filepath.Join(p.Dir, guardName), 0)
	return openLockfile(p)
}
