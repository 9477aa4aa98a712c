//go:build unix && !aix && !solaris

package lockfile

import (
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

const (
	// tickInterval is how often the store checks what no event reports, while tickets of
	// this process are out.
	tickInterval = 100 * time.Millisecond

	// idleInterval is the same while no ticket of this process is out.
	idleInterval = time.Second
)

// monitor syncs and checks the directory until the store is closed.
func (s *Store) monitor() {
	for ticked := (time.Time{}); ; {
		d := s.current.Load()
		if err := d.sync(); err != nil && !errors.Is(err, serializer.ErrClosed) {
			// Arrivals that need a ticket report it, too. Waiters keep waiting.
			s.report(slog.LevelError, "the lock directory could not be read; trying again", "error", err)
		}
		runtime.Gosched() // callers that were admitted go first
		if time.Since(ticked) >= tickInterval {
			d.tick()
			ticked = time.Now()
			// An idle process must not miss that the directory was replaced: it could be
			// replaced again.
			_ = s.moveOn() // see replaced.go
			d = s.current.Load()
		}
		if !s.rest(d, ticked) {
			return
		}
	}
}

// rest waits until the next tick, or until there is something to do before. It returns false
// when the store is closed.
func (s *Store) rest(d *directory, ticked time.Time) bool {
	d.syncing.Lock()
	out, blocked := len(d.local) > 0, d.blockedLocked()
	d.syncing.Unlock()
	next := ticked.Add(idleInterval)
	if out {
		next = ticked.Add(tickInterval)
	}
	if blocked {
		d.watch.Wait(min(time.Until(next), reapInterval))
		select {
		case <-s.closing:
			return false
		default:
			return true
		}
	}
	select {
	case <-s.closing:
		return false
	case <-s.nudge:
	case <-time.After(time.Until(next)):
	}
	return true
}

// blockedLocked reports whether a ticket of this process may wait for one of another.
func (d *directory) blockedLocked() bool { return len(d.local) > 0 && len(d.remote) > 0 }

// wakeLocked makes the monitor listen to the directory, now that tickets were issued.
func (d *directory) wakeLocked() {
	if !d.blockedLocked() {
		return
	}
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// tick checks what no event reports.
func (d *directory) tick() {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if !d.closed {
		d.checkTicketsLocked()
		d.checkOwnLocked()
		d.retryRemovalsLocked()
	}
}

// retryRemovalsLocked tries again to remove the files of tickets that are over.
func (d *directory) retryRemovalsLocked() {
	for _, t := range d.local {
		if d.own.State(t.Ref, t.Number) == owner.Leaving {
			_ = d.withdraw(t)
		}
	}
}
