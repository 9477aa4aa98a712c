package serializer

import (
	"errors"
	"io/fs"
	"time"
)

const (
	// tickInterval is how often the engine makes sure of what nobody would
	// tell it: that other owners live, and that the directory is the same.
	tickInterval = 100 * time.Millisecond

	// lingerTime is how long the directory stays open after the last turn.
	lingerTime = 5 * time.Second

	// strangersLooked bounds how many strangers are looked at in one tick.
	strangersLooked = 64

	// How often, and how soon, an owner is looked at again that has closed its
	// file and still holds its lock.
	deathRetries = 20
	deathPause   = 100 * time.Microsecond
)

// keep watches over the directory while it is open.
func (d *directory) keep() {
	defer close(d.done)
	next := time.Now().Add(d.engine.tickTime)
	for !d.finished() {
		d.pause(time.Until(next))
		d.part()
		d.attend()
		if time.Now().Before(next) {
			continue
		}
		d.tick()
		next = time.Now().Add(d.engine.tickTime)
	}
	d.lookBack()
	d.shut()
}

// lookBack takes out, before we go, what the dead have left: the next to come
// may be a long time off.
func (d *directory) lookBack() {
	if d.isRetired() {
		return
	}
	d.observing.Lock()
	defer d.observing.Unlock()
	if err := d.look(false); err != nil {
		d.complainAbout("", err)
		return
	}
	d.buryDead()
}

// pause waits for something to do: for a change in the directory if one of
// ours waits for another process, else for a nudge.
func (d *directory) pause(until time.Duration) {
	if until <= 0 {
		return
	}
	if d.waitsForOthers() {
		d.sys.wait(until)
		return
	}
	timer := time.NewTimer(until)
	defer timer.Stop()
	select {
	case <-d.nudge:
	case <-timer.C:
	}
}

func (d *directory) waitsForOthers() bool {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	return d.blocked > 0 && !d.retired
}

// attend hears out the changes. Errors show in the requests that need a
// ticket; whoever waits goes on waiting, for nothing is known to be over.
func (d *directory) attend() {
	d.observing.Lock()
	defer d.observing.Unlock()
	if d.isRetired() {
		return
	}
	if err := d.look(false); err != nil {
		d.complainAbout("", err)
	}
}

func (d *directory) isRetired() bool {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	return d.retired
}

// tick makes sure of what nobody tells.
func (d *directory) tick() {
	if !d.isRetired() && d.sys.check() == errReplaced {
		d.engine.retire(d)
	}
	d.observing.Lock()
	defer d.observing.Unlock()
	d.buryDead()
	if d.isRetired() {
		return
	}
	d.identifyEntries(d.firstUnknown())
	d.refuseBarred()
	d.settleAllMissing()
	d.abandonUnowned()
	d.clearLeftovers()
	d.refresh()
}

// firstUnknown lists tickets at the head of lines in which one of ours waits,
// as far as we do not know whose they are.
func (d *directory) firstUnknown() (entries []*ticket) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, l := range d.lines {
		if !l.blocked {
			continue
		}
		for e := l.First(); e != nil && !e.Local() && len(entries) < strangersLooked; e = e.Next() {
			if !e.known {
				entries = append(entries, e)
			}
		}
	}
	return entries
}

// clearLeftovers tries again to remove files that could not be removed.
func (d *directory) clearLeftovers() {
	f := d.engine
	f.mu.Lock()
	names := d.leftovers
	d.leftovers = nil
	f.mu.Unlock()
	for i, name := range names {
		if d.sys.remove(name) == nil {
			continue
		}
		f.mu.Lock()
		d.leftovers = append(d.leftovers, names[i:]...)
		f.mu.Unlock()
		return
	}
}

// finished reports whether the directory may be closed. A replaced one stays
// open until its turns are over, those of other processes, too: that is what
// the new one waits for.
func (d *directory) finished() bool {
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.busy() {
		return false
	}
	if d.retired && !f.closed {
		// The new one lies in the same place if only the guard was replaced, or
		// if the directory is back: there, the tickets speak for themselves.
		return d.parted && (len(d.peers) == 0 || d.sys.here())
	}
	if f.issuing && !f.closed || len(d.leftovers) > 0 && !f.closed {
		return false
	}
	if !f.closed && time.Since(d.idleSince) < lingerTime {
		return false
	}
	if f.dir == d {
		f.dir = nil
	}
	return true
}

// part gives up a replaced directory once none of our tickets is in it, and
// takes a last look under its guard. Whoever gave out tickets in it until now is
// known after that, and nobody else will: they look for the guard at its path.
func (d *directory) part() {
	if !d.deserted() {
		return
	}
	d.sys.disown()
	err := d.sys.lock()
	d.observing.Lock()
	defer d.observing.Unlock()
	if err != nil {
		d.complainAbout("", err)
		return
	}
	defer d.sys.unlock()
	last, err := d.lastLook()
	if err != nil {
		d.complainAbout("", err)
		return
	}
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	d.parted = true
	if last < maxStamp {
		d.engine.last = max(d.engine.last, last)
	}
}

var errUnread = errors.New("an owner file cannot be read yet")

// lastLook looks at a replaced directory, and returns the last number that was
// given out in it. There is nothing to look at where it was deleted.
func (d *directory) lastLook() (last uint64, err error) {
	if last, err = d.sys.last(); err != nil {
		return 0, err
	}
	if err := d.look(true); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if d.found.owners != nil {
		return 0, errUnread
	}
	return last, nil
}

// deserted reports whether a replaced directory is used no more but for what
// others do in it.
func (d *directory) deserted() bool {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	return d.retired && !d.parted && d.owned == 0 && d.users == 0
}

// busy reports whether the directory is used. The caller holds engine.mu.
func (d *directory) busy() bool { return d.owned > 0 || d.users > 0 }

// shut frees what the directory holds.
func (d *directory) shut() {
	for _, p := range d.peers {
		p.close()
	}
	d.sys.close()
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, old := range f.replaced {
		if old == d {
			f.replaced = append(f.replaced[:i:i], f.replaced[i+1:]...)
			break
		}
	}
}
