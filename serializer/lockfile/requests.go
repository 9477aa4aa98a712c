//go:build unix && !aix && !solaris

package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Pauses, and requests to evict a ticket, are empty files, whose names say everything. So
// they are made at once, and every process that lists the directory learns of them. If a
// queue has several pauses, because one is being replaced, the one that ends last counts.
// All processes end a pause by the same clock, and any of them removes the file.

// Pause implements [serializer.Store].
func (s *Store) Pause(_ context.Context, queue string, until time.Time) error {
	p := name.Pause{Queue: queue, End: until}
	if err := p.Check(); err != nil {
		return fmt.Errorf("pausing queue %q: %w", queue, err)
	}
	return s.setPause(queue, p.String())
}

// Resume implements [serializer.Store].
func (s *Store) Resume(_ context.Context, queue string) error { return s.setPause(queue, "") }

// setPause makes a pause's file, unless its name is empty, and removes the other pauses of
// the queue.
func (s *Store) setPause(queue, file string) error {
	if err := s.exchangeIdle(); err != nil {
		return err
	}
	d := s.current.Load()
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err := d.syncLocked(); err != nil {
		return err
	}
	if file != "" {
		if err := d.sys.Mark(file); err != nil {
			return d.failed("making", file, err)
		}
	}
	for old, p := range d.pauses {
		if p.Queue != queue || old == file {
			continue
		}
		if err := d.sys.Unlink(old); err != nil {
			return d.failed("removing", old, err)
		}
	}
	return d.syncLocked()
}

// notePauseLocked notes a change of a pause's file.
func (d *directory) notePauseLocked(c dir.Change, file string) {
	p, ok := name.ParsePause(file)
	if !ok {
		d.report(slog.LevelError, "a file name looks like a pause but cannot be parsed; it pauses nothing, remove it", "path", d.pathOf(file))
		return
	}
	if c == dir.Vanished {
		delete(d.pauses, file)
	} else {
		d.pauses[file] = p
	}
	d.reportPausesLocked()
}

// reportPausesLocked reports what has changed.
func (d *directory) reportPausesLocked() {
	now, ends := time.Now(), make(map[string]time.Time)
	for _, p := range d.pauses {
		if p.End.After(now) && p.End.After(ends[p.Queue]) {
			ends[p.Queue] = p.End
		}
	}
	for queue, end := range ends {
		if !d.paused[queue].Equal(end) {
			d.events.Paused(queue, end)
		}
	}
	for queue := range d.paused {
		if ends[queue].IsZero() {
			d.events.Paused(queue, time.Time{})
		}
	}
	d.paused = ends
}

// endPausesLocked removes the files of pauses that are over.
func (d *directory) endPausesLocked() {
	for file, p := range d.pauses {
		if !p.End.After(time.Now()) {
			_ = d.unlink(file)
		}
	}
}

// Evict implements [serializer.Store]. The owner of the ticket removes the file that asks
// for the eviction. Until then, it has not obeyed: its process may be stopped.
func (s *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	d := s.current.Load()
	file, err := d.askForEviction(t)
	if err != nil || file == "" {
		return err
	}
	for ctx.Err() == nil {
		if _, err := d.sys.Info(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(obeyPoll)
	}
	return ctx.Err()
}

// obeyPoll is how often a process looks whether another one has obeyed.
const obeyPoll = 10 * time.Millisecond

// askForEviction makes the file that asks for an eviction. It removes a ticket without an
// owner itself; then there is no file.
func (d *directory) askForEviction(t *serializer.Ticket) (file string, err error) {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	r := d.remote[t.Key]
	if r == nil || !r.out {
		return "", serializer.ErrNoTicket
	}
	if !r.since.IsZero() {
		if err := d.sys.Unlink(t.Key); err != nil {
			return "", d.failed("removing lock file", t.Key, err)
		}
		return "", d.syncLocked()
	}
	file = name.Evict(t.Number, t.Queue)
	if err := d.sys.Mark(file); err != nil {
		return "", d.failed("making", file, err)
	}
	return file, nil
}

// obeyLocked evicts the ticket that a file asks for, if it is local. It removes the file,
// unless the ticket is remote: then it returns false, as this is for the owner to do.
func (d *directory) obeyLocked(file string) bool {
	for _, r := range d.remote {
		if file == name.Evict(r.Number, r.Queue) && r.out {
			return false
		}
	}
	for _, t := range d.local {
		if file == name.Evict(t.Number, t.Queue) && d.own.Stands(t.Ref, t.Number) {
			d.events.Evict(t.Queue, t.Number)
		}
	}
	return d.unlink(file) == nil
}
