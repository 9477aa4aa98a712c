package serializer

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// A lock file may belong to a user whose files this process cannot open, or be damaged.
// Then nobody can tell whether its owner lives, and a wait for it might never end. So
// those behind it are refused, with its name. An owner file like that does no harm:
// if a ticket is linked to it, that ticket is.

// barred is what is known of a lock file that cannot be opened.
type barred struct {
	since     time.Time
	err       error
	announced bool // the log tells of it
}

// barredTime is how long a lock file must have been in the way like that. One that
// was just made may not have been given to its directory's owner yet.
const barredTime = 2 * tickInterval

// lasting reports whether a file has been barred for long enough.
func (b *barred) lasting() bool { return time.Since(b.since) >= barredTime }

// bars reports whether an error is that of a file, which may stay. One that says that
// this process is short of something at the moment does not refuse anybody.
func bars(err error) bool {
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotOurs) &&
		!errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && !errors.Is(err, syscall.ENOMEM)
}

// barOwner notes that an owner file cannot be opened. Until that has lasted, each sync
// tries again, and afterwards each tick.
func (s *syncer) barOwner(name string, err error) {
	b := s.barredOwners[name]
	if b == nil {
		b = &barred{since: time.Now()}
		s.barredOwners[name] = b
	}
	if !b.lasting() {
		s.found.owners = append(s.found.owners, name)
		return
	}
	if !b.announced {
		b.announced = true
		s.log.Warn("an owner file cannot be opened; remove it if its process has ended",
			"path", filepath.Join(s.path, name), "error", err)
	}
}

// openBarredOwners tries again to open owner files that could not be opened.
func (s *syncer) openBarredOwners() {
	for name, b := range s.barredOwners {
		if b.lasting() {
			s.openOwner(name, false)
		}
	}
}

// barLocked notes that the file cannot be opened.
func (t *ticket) barLocked(err error) {
	if t.barred == nil {
		t.barred = &barred{since: time.Now()}
	}
	t.barred.err = err
}

// refuseBarred refuses those of ours that wait behind a lock file that cannot be
// opened.
func (d *directory) refuseBarred() {
	d.mu.Lock()
	var refused, inTheWay []*ticket
	for _, q := range d.queues {
		if t := q.barredHead(); t != nil {
			inTheWay = append(inTheWay, t)
			refused = append(refused, d.dismissBehindLocked(t)...)
		}
	}
	d.mu.Unlock()
	for _, t := range inTheWay {
		d.logRepeated(slog.LevelError, "requests are refused behind a lock file that cannot be opened, for nobody can tell whether its owner lives",
			"path", filepath.Join(d.path, t.name), "error", t.barred.err)
	}
	d.removeTickets(refused)
}

// barredHead returns the first ticket before any of ours that has been barred for
// long enough, if one of ours waits in the queue.
func (q *ticketQueue) barredHead() *ticket {
	if !q.blocked {
		return nil
	}
	for t := q.First(); t != nil && !t.Local(); t = t.Next() {
		if t.barred != nil && t.barred.lasting() {
			return t
		}
	}
	return nil
}

// barredTicket returns why nobody can tell who is inside a replaced directory: the
// ticket of an owner that cannot be opened. If the directory is still at its path, the
// ticket is found there.
func (s *syncer) barredTicket() error {
	if s.sys.here() {
		return nil
	}
	s.identifyTickets(s.remoteTickets(func(t *ticket) bool { return !t.known }))
	for _, t := range s.remoteTickets(func(t *ticket) bool { return t.barred != nil }) {
		return &StorageError{"waiting behind lock file", filepath.Join(s.path, t.name), t.barred.err}
	}
	return nil
}

// dismissBehindLocked refuses all of ours that wait behind a barred ticket, and returns
// them: their files are left to be removed.
func (d *directory) dismissBehindLocked(ahead *ticket) (dismissed []*ticket) {
	why := &StorageError{"waiting behind lock file", filepath.Join(d.path, ahead.name), ahead.barred.err}
	for _, t := range slices.Collect(queue.From(ahead.Next())) { // others may go with one
		if t.Local() && !t.Admitted() && t.linked && !t.out {
			d.dismissLocked(t, why)
			dismissed = append(dismissed, t)
		}
	}
	return dismissed
}
