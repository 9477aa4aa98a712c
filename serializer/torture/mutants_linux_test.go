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
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// Mutants are stores of lock files with one deliberate defect each, which the harness
// must find.

func init() {
	for name, mutate := range map[string]func(*process, *mutant){
		"late":     late,
		"aging":    aging,
		"gullible": gullible,
		"silent":   silent,
		"blurred":  blurred,
		"deaf":     deaf,
		"asleep":   asleep,
		"leaky":    leaky,
		"evictor":  evictor,
		"hoarder":  hoarder,
		"patient":  patient,
		"sharing":  sharing,
	} {
		openers[name] = func(p *process) (serializer.Store, error) { return p.openMutant(mutate) }
	}
	openers["forgetful"] = openForgetful
	openers["stayer"] = openStayer
}

// mutant is what a mutate function can replace: some methods of a store, and some events
// on their way to the engine.
type mutant struct {
	serializer.Store
	append func(ctx context.Context, tickets []*serializer.Ticket) error
	remove func(t *serializer.Ticket)

	events             serializer.Events
	joined             func(t *serializer.Ticket) bool
	appeared, vanished func(t *serializer.Ticket)
	paused             func(name string, until time.Time)

	mutate func()
}

func (p *process) openMutant(mutate func(*process, *mutant)) (serializer.Store, error) {
	s, err := openLockfile(p)
	if err != nil {
		return nil, err
	}
	m := &mutant{Store: s, append: s.Append, remove: s.Remove}
	m.mutate = func() { mutate(p, m) }
	return m, nil
}

func (m *mutant) Follow(e serializer.Events) {
	m.events, m.joined, m.appeared, m.vanished, m.paused = e, e.Joined, e.Appeared, e.Vanished, e.Paused
	m.mutate()
	m.Store.Follow(mutantEvents{e, m})
}

func (m *mutant) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return m.append(ctx, tickets)
}

func (m *mutant) Remove(t *serializer.Ticket) { m.remove(t) }

type mutantEvents struct {
	serializer.Events
	*mutant
}

func (e mutantEvents) Joined(t *serializer.Ticket) bool       { return e.joined(t) }
func (e mutantEvents) Appeared(t *serializer.Ticket)          { e.appeared(t) }
func (e mutantEvents) Vanished(t *serializer.Ticket)          { e.vanished(t) }
func (e mutantEvents) Paused(name string, until time.Time)    { e.paused(name, until) }
func (e mutantEvents) Evict(queue string, number uint64) bool { return e.events.Evict(queue, number) }

// late reports what other processes do a moment later, so that its own tickets are
// reported before smaller ones. That is what happens without the guard.
func late(_ *process, m *mutant) {
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
	m.appeared, m.vanished = later(m.appeared), later(m.vanished)
}

// aging takes the tickets of other processes for abandoned after a while.
func aging(_ *process, m *mutant) {
	appeared := m.appeared
	m.appeared = func(t *serializer.Ticket) {
		appeared(t)
		time.AfterFunc(300*time.Millisecond, func() { m.vanished(t) })
	}
}

// gullible takes every lock file that disappears for one that its owner has removed.
func gullible(p *process, m *mutant) {
	appeared := m.appeared
	m.appeared = func(t *serializer.Ticket) {
		appeared(t)
		path := filepath.Join(p.Dir, t.Key)
		var look func()
		look = func() {
			if _, err := os.Lstat(path); err != nil {
				m.vanished(t)
				return
			}
			time.AfterFunc(5*time.Millisecond, look)
		}
		time.AfterFunc(5*time.Millisecond, look)
	}
}

// silent does not report some tickets that other processes have removed.
func silent(_ *process, m *mutant) {
	vanished := m.vanished
	m.vanished = func(t *serializer.Ticket) {
		if rand.IntN(1000) > 0 {
			vanished(t)
		}
	}
}

// blurred takes the tickets of other processes for those of readers.
func blurred(_ *process, m *mutant) {
	appeared := m.appeared
	m.appeared = func(t *serializer.Ticket) {
		t.Rule = serializer.Rule{Shared: true}
		appeared(t)
	}
}

// sharing does not report who has which slot.
func sharing(_ *process, m *mutant) {
	appeared := m.appeared
	m.appeared = func(t *serializer.Ticket) {
		if !strings.HasPrefix(t.Queue, "%=") {
			appeared(t)
		}
	}
}

// deaf does not report pauses.
func deaf(_ *process, m *mutant) {
	paused := m.paused
	m.paused = func(name string, until time.Time) {
		if until.IsZero() {
			paused(name, until)
		}
	}
}

// asleep does not report that pauses have ended.
func asleep(_ *process, m *mutant) {
	paused := m.paused
	m.paused = func(name string, until time.Time) {
		if !until.IsZero() {
			paused(name, until)
		}
	}
}

// leaky ends pauses too early.
func leaky(_ *process, m *mutant) {
	paused := m.paused
	m.paused = func(name string, until time.Time) {
		paused(name, until)
		if !until.IsZero() {
			time.AfterFunc(500*time.Millisecond, func() { paused(name, time.Time{}) })
		}
	}
}

// evictor evicts some tickets that nobody wanted to be evicted.
func evictor(_ *process, m *mutant) {
	joined := m.joined
	m.joined = func(t *serializer.Ticket) bool {
		if rand.IntN(1000) == 0 {
			time.AfterFunc(time.Millisecond, func() { m.events.Evict(t.Queue, t.Number) })
		}
		return joined(t)
	}
}

// hoarder does not remove some tickets.
func hoarder(_ *process, m *mutant) {
	remove := m.remove
	m.remove = func(t *serializer.Ticket) {
		if rand.IntN(1000) > 0 {
			remove(t)
		}
	}
}

// patient waits until tickets can be numbered, perhaps for their own callers.
func patient(_ *process, m *mutant) {
	once := m.append
	m.append = func(ctx context.Context, tickets []*serializer.Ticket) error {
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
