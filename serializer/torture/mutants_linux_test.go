package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
		"late":     late,
		"aging":    aging,
		"gullible": gullible,
		"silent":   silent,
		"blurred":  blurred,
		"deaf":     deaf,
		"asleep":   asleep,
		"leaky":    leaky,
		"evictor":  evictor,
		"patient":  patient,
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

// late reports what other processes do a moment later, so that its own tickets are
// reported before smaller ones. That is what happens without the guard.
func late(_ *process, m *testmutant.Store) {
	var mu sync.Mutex
	var queued []func()
	later := func(tell func(*serializer.Ticket)) func(*serializer.Ticket) {
		return func(t *serializer.Ticket) {
			mu.Lock()
			defer mu.Unlock()
			if queued = append(queued, func() { tell(t) }); len(queued) > 1 {
				return
			}
			time.AfterFunc(time.Millisecond, func() {
				mu.Lock()
				defer mu.Unlock()
				for _, tell := range queued {
					tell()
				}
				queued = nil
			})
		}
	}
	m.Events.OnAppeared, m.Events.OnVanished = later(m.Events.OnAppeared), later(m.Events.OnVanished)
}

// aging takes the tickets of other processes for abandoned after a while.
func aging(_ *process, m *testmutant.Store) {
	appeared := m.Events.OnAppeared
	m.Events.OnAppeared = func(t *serializer.Ticket) {
		appeared(t)
		time.AfterFunc(300*time.Millisecond, func() { m.Events.OnVanished(t) })
	}
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

// blurred takes the tickets of other processes for those of readers.
func blurred(_ *process, m *testmutant.Store) {
	appeared := m.Events.OnAppeared
	m.Events.OnAppeared = func(t *serializer.Ticket) {
		t.Rule = serializer.Rule{Shared: true}
		appeared(t)
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

// deaf does not report pauses.
func deaf(_ *process, m *testmutant.Store) {
	paused := m.Events.OnPaused
	m.Events.OnPaused = func(name string, until time.Time) {
		if until.IsZero() {
			paused(name, until)
		}
	}
}

// asleep does not report that pauses have ended.
func asleep(_ *process, m *testmutant.Store) {
	paused := m.Events.OnPaused
	m.Events.OnPaused = func(name string, until time.Time) {
		if !until.IsZero() {
			paused(name, until)
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

// patient waits until tickets can be numbered, perhaps for their own callers.
func patient(_ *process, m *testmutant.Store) {
	once := m.DoAppend
	m.DoAppend = func(ctx context.Context, tickets []*serializer.Ticket) error {
		err := once(ctx, tickets)
		for errors.Is(err, serializer.ErrNotNow) && sleep(ctx, 2*time.Millisecond) {
			err = once(ctx, tickets)
		}
		return err
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
