package serializer

import (
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// A lock file may belong to a user whose files this process cannot open. Then
// nobody can tell whether its owner lives, and to wait for it could be to wait for
// ever. So those behind it are refused, with its name.

// barred is what is known of a lock file that cannot be opened.
type barred struct {
	since time.Time
	err   error
}

// barredTime is how long a lock file must have been in the way like that. One that
// was just made may not have been given to its directory's owner yet.
const barredTime = 2 * tickInterval

// bar notes that the file cannot be opened. The caller holds engine.mu.
func (e *ticket) bar(err error) {
	if e.barred == nil {
		e.barred = &barred{since: time.Now()}
	}
	e.barred.err = err
}

// refuseBarred refuses those of ours that wait behind a lock file that cannot be
// opened.
func (d *directory) refuseBarred() {
	f := d.engine
	f.mu.Lock()
	var refused []*ticket
	var inTheWay []*ticket
	for _, l := range d.lines {
		if e := l.barredHead(); e != nil {
			inTheWay = append(inTheWay, e)
			refused = append(refused, d.dismissFrom(e)...)
		}
	}
	f.mu.Unlock()
	for _, e := range inTheWay {
		f.log.Error("requests are refused behind a lock file that cannot be opened, for nobody can tell whether its owner lives",
			"path", filepath.Join(f.path, e.name), "error", e.barred.err)
	}
	for _, p := range refused {
		d.removeTicket(p)
	}
}

// barredHead returns the first ticket before any of ours that has been barred for
// long enough, if one of ours waits for it.
func (l *ticketQueue) barredHead() *ticket {
	if !l.blocked {
		return nil
	}
	for e := l.First(); e != nil && !e.Local(); e = e.Next() {
		if e.barred != nil && time.Since(e.barred.since) >= barredTime {
			return e
		}
	}
	return nil
}

// dismissFrom refuses all of ours that wait behind a ticket, and returns them: their
// files are left to be removed. The caller holds engine.mu.
func (d *directory) dismissFrom(ahead *ticket) (dismissed []*ticket) {
	for t := range queue.From(ahead.Next()) {
		if t.Local() && !t.Admitted() && t.linked {
			d.drop(t)
			t.refuse(&StorageError{"waiting behind lock file", filepath.Join(d.engine.path, ahead.name), ahead.barred.err})
			dismissed = append(dismissed, t)
		}
	}
	return dismissed
}
