package serializer

import (
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// A lock file may belong to a user whose files this process cannot open. Then
// nobody can tell whether its owner lives, and a wait for it might never end. So
// those behind it are refused, with its name.

// barred is what is known of a lock file that cannot be opened.
type barred struct {
	since time.Time
	err   error
}

// barredTime is how long a lock file must have been in the way like that. One that
// was just made may not have been given to its directory's owner yet.
const barredTime = 2 * tickInterval

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
		d.log.Error("requests are refused behind a lock file that cannot be opened, for nobody can tell whether its owner lives",
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
		if t.barred != nil && time.Since(t.barred.since) >= barredTime {
			return t
		}
	}
	return nil
}

// dismissBehindLocked refuses all of ours that wait behind a barred ticket, and returns
// them: their files are left to be removed.
func (d *directory) dismissBehindLocked(ahead *ticket) (dismissed []*ticket) {
	why := &StorageError{"waiting behind lock file", filepath.Join(d.path, ahead.name), ahead.barred.err}
	for t := range queue.From(ahead.Next()) {
		if t.Local() && !t.Admitted() && t.linked {
			d.dismissLocked(t, why)
			dismissed = append(dismissed, t)
		}
	}
	return dismissed
}
