//go:build unix && !aix && !solaris

package lockfile

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
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
func (s *Store) Pause(ctx context.Context, queue string, until time.Time) error {
	return s.setPause(ctx, queue, name.Pause{Queue: queue, End: until}.String())
}

// Resume implements [serializer.Store].
func (s *Store) Resume(ctx context.Context, queue string) error { return s.setPause(ctx, queue, "") }

// setPause makes a pause's file, unless its name is empty, and removes the other pauses of
// the queue.
func (s *Store) setPause(ctx context.Context, queue, file string) error {
	if err := s.Sync(ctx); err != nil {
		return err
	}
	d := s.current.Load()
	if file != "" && !d.sys.Here() {
		return d.failed("pausing queues in", "", dir.ErrReplaced)
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
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

// notePauseLocked notes a change of a pause's file, and reports when the last pause of its
// queue ends.
func (d *directory) notePauseLocked(c dir.Change, file string) {
	p, ok := name.ParsePause(file)
	switch {
	case !ok:
		d.report(slog.LevelError, "a file name looks like a pause but cannot be parsed; it pauses nothing, remove it", "path", d.pathOf(file))
		return
	case c == dir.Appeared:
		d.pauses[file] = p
	case c == dir.Vanished:
		delete(d.pauses, file)
	}
	var end time.Time
	for _, other := range d.pauses {
		if other.Queue == p.Queue && other.End.After(end) {
			end = other.End
		}
	}
	d.events.Paused(p.Queue, end)
}

// endPausesLocked ends the pauses that are over.
func (d *directory) endPausesLocked() {
	for file, p := range d.pauses {
		if !p.End.After(time.Now()) {
			_ = d.unlink(file)
			d.notePauseLocked(dir.Vanished, file)
		}
	}
}

// Evict implements [serializer.Store]. The owner of the ticket removes the file that asks
// for the eviction. Until then, it has not obeyed: its process may be stopped.
func (s *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	d := s.current.Load()
	file, err := d.askForEviction(t)
	for ; err == nil && d.isAsked(file); err = ctx.Err() {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// isAsked reports whether a file that asks for an eviction is still there. In a directory
// that was replaced and closed, nobody is left.
func (d *directory) isAsked(file string) bool {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	_, err := d.sys.Info(file)
	return !d.closed && !errors.Is(err, fs.ErrNotExist)
}

// askForEviction makes the file that asks for an eviction. It removes a ticket without an
// owner itself; then there is no file.
func (d *directory) askForEviction(t *serializer.Ticket) (file string, err error) {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	r := d.remote[t.Key]
	if r == nil {
		return "", serializer.ErrNoTicket
	}
	if r.by != nil {
		file = name.Evicts + t.Key
		if err := d.sys.Mark(file); err != nil {
			return "", d.failed("making", file, err)
		}
		return file, nil
	}
	if err := d.sys.Unlink(t.Key); err != nil {
		return "", d.failed("removing lock file", t.Key, err)
	}
	return "", d.syncLocked()
}

// obeyLocked evicts the ticket that a file asks for, if it is local. It removes the file,
// unless the ticket is remote: then it returns false, as this is for the owner to do.
func (d *directory) obeyLocked(file string) bool {
	ticket := strings.TrimPrefix(file, name.Evicts)
	if d.remote[ticket] != nil {
		return false
	}
	if t := d.local[ticket]; t != nil && d.own.State(t.Ref, t.Number).Stands() {
		d.events.Evict(t.Queue, t.Number)
	}
	return d.unlink(file) == nil
}
