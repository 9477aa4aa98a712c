package serializer

import (
	"log/slog"
	"time"
)

// The last number is recorded with every ticket, but not on the disk: waiting for
// that would cost more than all the rest. After a power failure, the guard file may
// say what it said a while ago, and the clock may be behind. So it also says, on the
// disk, up to which number tickets may have been given out. That is moved on ahead of
// time, many numbers at once. A process that comes after the next start begins above it.

// reserveTime is how many numbers are reserved at once, as time on the queue's clock.
// After a start of the machine, numbers may be that much ahead of the clock.
const reserveTime = time.Minute

const reserveAhead = uint64(reserveTime / time.Microsecond)

// reservation is up to where numbers may be given out.
type reservation struct {
	bound     uint64 // recorded
	confirmed uint64 // known to be on the disk
	outdated  bool   // from before the machine was started last
}

// afterStart returns the number after which to go on: where the guard file was last
// written before the machine was started, that is the end of what was reserved. The
// caller holds the guard.
func (d *directory) afterStart(last uint64) (uint64, error) {
	if d.started {
		return last, nil
	}
	r, err := d.sys.reservation()
	if err != nil {
		return last, err
	}
	d.started = true
	if r.outdated && r.bound < maxStamp {
		last = max(last, r.bound)
	}
	if !r.outdated {
		d.reserved.Store(r.confirmed)
	}
	return last, nil
}

// reserve makes sure that numbers up to last may be given out. It waits for the disk
// only if nobody has done so ahead of time. The caller holds the guard.
func (d *directory) reserve(last uint64) error {
	reserved := d.reserved.Load()
	enough := min(last+reserveAhead/2, maxStamp)
	if enough <= reserved {
		return nil
	}
	r, err := d.sys.reservation() // another process may have been faster
	if err != nil {
		return err
	}
	if r.outdated {
		r = reservation{}
	}
	if r.confirmed >= enough {
		d.reserved.Store(r.confirmed)
		return nil
	}
	ahead := last <= max(reserved, r.confirmed)
	if ahead && d.confirming.Load() {
		return nil
	}
	if r.bound < enough {
		r.bound = min(last+reserveAhead, maxStamp)
	}
	// Also where it is there already: it may be one that the disk has lost.
	if err := d.sys.setBound(r.bound); err != nil {
		return err
	}
	if ahead {
		d.confirmLater(r.bound)
		return nil
	}
	return d.confirm(r.bound)
}

// confirm waits until a bound is on the disk.
func (d *directory) confirm(bound uint64) error {
	if err := d.sys.confirm(bound); err != nil {
		return err
	}
	d.reserved.Store(bound)
	return nil
}

// confirmLater does so while tickets are given out. If it fails, a batch that needs
// the numbers tries again, and is refused.
func (d *directory) confirmLater(bound uint64) {
	if !d.confirming.CompareAndSwap(false, true) {
		return
	}
	d.use()
	go func() {
		defer d.release()
		defer d.confirming.Store(false)
		if err := d.confirm(bound); err != nil {
			d.logRepeated(slog.LevelError, "numbers for tickets could not be reserved ahead of time; trying again", "error", err)
		}
	}()
}
