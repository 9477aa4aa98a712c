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

// This process may be unable to open a lock file, because it belongs to another user or
// is damaged. Then nobody can tell whether its owner is alive, and a wait for it might
// never end. So the arrivals behind it are refused, with an error that names the file. An
// owner file that cannot be opened does no harm by itself. If a ticket is linked to it,
// the rule applies to that ticket.

// barred is the state of a lock file that cannot be opened.
type barred struct {
	since     time.Time
	err       error
	announced bool // it has been logged
}

// barredTime is how long a lock file must have been impossible to open before it counts
// as barred. A new file may not have been given to the directory's owner yet.
const barredTime = 2 * tickInterval

// lasting reports whether a file has been barred for long enough.
func (b *barred) lasting() bool { return time.Since(b.since) >= barredTime }

// bars reports whether an error concerns the file itself, and may therefore last. Nobody
// is refused because this process lacks file descriptors or memory for a moment.
func bars(err error) bool {
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotOurs) &&
		!errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && !errors.Is(err, syscall.ENOMEM)
}

// barOwner notes that an owner file cannot be opened. At first, each sync tries again;
// once the file is barred, each tick does.
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

// openBarredOwners tries to open the barred owner files again.
func (s *syncer) openBarredOwners() {
	for name, b := range s.barredOwners {
		if b.lasting() {
			s.openOwner(name, false)
		}
	}
}

// barLocked notes that the lock file cannot be opened.
func (t *ticket) barLocked(err error) {
	if t.barred == nil {
		t.barred = &barred{since: time.Now()}
	}
	t.barred.err = err
}

// refuseBarred refuses the local waiters behind lock files that cannot be opened.
func (d *directory) refuseBarred() {
	d.mu.Lock()
	var refused, blocking []*ticket
	for _, q := range d.queues.byName {
		if t := q.barredHead(); t != nil {
			blocking = append(blocking, t)
			refused = append(refused, d.dismissBehindLocked(t)...)
		}
	}
	d.mu.Unlock()
	for _, t := range blocking {
		d.logRepeated(slog.LevelError, "a lock file cannot be opened, so nobody can tell whether its owner is alive; requests behind it are refused",
			"path", filepath.Join(d.path, t.name), "error", t.barred.err)
	}
	d.removeDismissed(refused...)
}

// barredHead returns the first barred ticket ahead of all local ones, if a local ticket
// waits in the queue.
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

// barredTicket returns an error if a ticket's owner cannot be opened: then nobody can
// tell who is inside a replaced directory. If the directory is still at its path, the
// ticket is found there, and the error is nil.
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

// dismissBehindLocked refuses and returns all local waiters behind a barred ticket. The
// caller must remove their files.
func (d *directory) dismissBehindLocked(ahead *ticket) (dismissed []*ticket) {
	why := &StorageError{"waiting behind lock file", filepath.Join(d.path, ahead.name), ahead.barred.err}
	for _, t := range slices.Collect(queue.From(ahead.Next())) { // dismissing one may remove others from the queue
		if t.Local() && !t.Admitted() && t.linked && !t.out {
			d.dismissLocked(t, why)
			dismissed = append(dismissed, t)
		}
	}
	return dismissed
}
