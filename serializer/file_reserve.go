package serializer

import (
	"log/slog"
	"time"
)

// The last number is recorded with every ticket, but not flushed to the disk: that would
// cost more than everything else. After a power failure, the guard file may have old
// content, and the clock may be behind. So the guard file also has a bound, which is
// flushed: no number above it has been issued. The bound is raised in advance, by many
// numbers at once. After the next boot, numbering starts above it.

// reserveTime is how many numbers are reserved at once, as time on the queue's clock.
// After a boot, numbers may be that far ahead of the clock.
const reserveTime = time.Minute

const reserveAhead = uint64(reserveTime / time.Microsecond)

// reservation says up to which number tickets may be issued.
type reservation struct {
	bound     uint64 // recorded
	confirmed uint64 // known to be on the disk
	outdated  bool   // written before the last boot
}

// afterStart returns the number after which numbering continues. If the guard file was
// last written before the last boot, that is the end of the reservation. The caller holds
// the guard.
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

// reserve makes sure that numbers up to last may be issued. It waits for the disk only if
// they were not reserved in advance. The caller holds the guard.
func (d *directory) reserve(last uint64) error {
	reserved := d.reserved.Load()
	enough := min(last+reserveAhead/2, maxStamp)
	if enough <= reserved {
		return nil
	}
	r, err := d.sys.reservation() // another process may have reserved them
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
	// Write it even if it is already there: the disk may have lost it.
	if err := d.sys.setBound(r.bound); err != nil {
		return err
	}
	if ahead {
		d.confirmLater(r.bound)
		return nil
	}
	return d.confirm(r.bound)
}

// confirm flushes a bound to the disk.
func (d *directory) confirm(bound uint64) error {
	if err := d.sys.confirm(bound); err != nil {
		return err
	}
	d.reserved.Store(bound)
	return nil
}

// confirmLater confirms a bound in the background, while tickets are issued. If it fails,
// the batch that needs the numbers tries again, and is refused if that fails, too.
func (d *directory) confirmLater(bound uint64) {
	if !d.confirming.CompareAndSwap(false, true) {
		return
	}
	d.use()
	go func() {
		defer d.release()
		defer d.confirming.Store(false)
		if err := d.confirm(bound); err != nil {
			d.logRepeated(slog.LevelError, "ticket numbers could not be reserved in advance; trying again", "error", err)
		}
	}()
}
