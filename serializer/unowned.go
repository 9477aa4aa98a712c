package serializer

import (
	"path/filepath"
	"time"
)

// An unowned file has the form of a ticket and is no owner's link: it comes from
// another program, such as mod_serializer, or from a person. It is waited for, but
// nobody can tell whether anybody still stands behind it.

const (
	// strangerTime is the age at which an unowned file counts as abandoned.
	strangerTime = 5 * time.Minute

	// unownedText is the owner of an unowned file, for people.
	unownedText = "not a ticket of Orderly"

	// announceTime is the least time between two lines in the log that tell of one.
	announceTime = time.Minute
)

// noteUnowned notes that no process of ours owns a ticket. Its age counts on from
// what it is now by the clock of the file system, so it does not begin anew with
// each process that comes; from then on, by a clock that nobody sets.
func (d *directory) noteUnowned(e *ticket) {
	age := d.sys.age(e.name)
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.out {
		return
	}
	if _, ok := f.strangers[e.name]; !ok {
		f.strangers[e.name] = time.Now().Add(-age)
	}
	e.owner = unownedText
	e.unowned = true
	e.queue.Identify(e, e.Rule) // it counts as one that is to be alone
	d.update(e.queue)
}

// abandonUnowned removes unowned files that are too old, and tells of one that is
// waited for.
func (d *directory) abandonUnowned() {
	for _, e := range d.foreign(func(e *ticket) bool { return e.unowned && !e.known }) {
		age, blocks := d.ageOf(e)
		switch {
		case age > d.engine.strangerTime:
			d.abandon(e)
		case blocks && !e.announced:
			d.announce(e, age)
		}
	}
}

// ageOf tells how old an unowned file is, and whether one of ours waits behind it.
func (d *directory) ageOf(e *ticket) (age time.Duration, blocks bool) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	if since, ok := d.engine.strangers[e.name]; ok {
		age = time.Since(since)
	}
	return age, e.queue != nil && e.queue.blocked
}

func (d *directory) abandon(e *ticket) {
	f := d.engine
	f.log.Warn("a lock file that belongs to no process of Orderly counts as abandoned",
		"path", f.path, "file", e.name, "after", f.strangerTime)
	d.removeFile(e.name)
	d.forget(e)
}

func (d *directory) announce(e *ticket, age time.Duration) {
	e.announced = true
	if !d.announced.IsZero() && time.Since(d.announced) < announceTime {
		return
	}
	d.announced = time.Now()
	d.engine.log.Warn("waiting for a lock file that belongs to no process of Orderly; remove it if nothing stands behind it",
		"path", filepath.Join(d.engine.path, e.name), "age", age.Round(time.Second), "abandoned after", d.engine.strangerTime)
}
