package serializer

import (
	"log/slog"
	"sync/atomic"
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

// numberReserve are the numbers that the issuing goroutine may use.
type numberReserve struct {
	sys        lockDir
	started    bool          // a restart of the machine has been taken into account
	confirmed  atomic.Uint64 // numbers up to this one may be issued
	confirming atomic.Bool   // a goroutine is waiting for the disk
}

// afterStart returns the number after which numbering continues. If the guard file was
// last written before the last boot, that is the end of the reservation. The caller holds
// the guard.
func (n *numberReserve) afterStart(last uint64) (uint64, error) {
	if n.started {
		return last, nil
	}
	r, err := n.sys.reservation()
	if err != nil {
		return last, err
	}
	n.started = true
	if r.outdated && r.bound < maxStamp {
		last = max(last, r.bound)
	}
	if !r.outdated {
		n.confirmed.Store(r.confirmed)
	}
	return last, nil
}

// reserve makes sure that numbers up to last may be issued. It waits for the disk only if
// they were not reserved in advance. If next is not 0, that bound is to be confirmed while
// tickets are issued. The caller holds the guard.
func (n *numberReserve) reserve(last uint64) (next uint64, err error) {
	confirmed := n.confirmed.Load()
	enough := min(last+reserveAhead/2, maxStamp)
	if enough <= confirmed {
		return 0, nil
	}
	r, err := n.sys.reservation() // another process may have reserved them
	if err != nil {
		return 0, err
	}
	if r.outdated {
		r = reservation{}
	}
	if r.confirmed >= enough {
		n.confirmed.Store(r.confirmed)
		return 0, nil
	}
	ahead := last <= max(confirmed, r.confirmed)
	if ahead && n.confirming.Load() {
		return 0, nil
	}
	if r.bound < enough {
		r.bound = min(last+reserveAhead, maxStamp)
	}
	// Write it even if it is already there: the disk may have lost it.
	if err := n.sys.setBound(r.bound); err != nil {
		return 0, err
	}
	if ahead {
		return r.bound, nil
	}
	return 0, n.confirm(r.bound)
}

// confirm flushes a bound to the disk.
func (n *numberReserve) confirm(bound uint64) error {
	if err := n.sys.confirm(bound); err != nil {
		return err
	}
	n.confirmed.Store(bound)
	return nil
}

// confirmLater confirms a bound in the background, while tickets are issued. If it fails,
// the batch that needs the numbers tries again, and is refused if that fails, too.
func (d *directory) confirmLater(bound uint64) {
	d.numbers.confirming.Store(true)
	d.use()
	go func() {
		defer d.release()
		defer d.numbers.confirming.Store(false)
		if err := d.numbers.confirm(bound); err != nil {
			d.logRepeated(slog.LevelError, "ticket numbers could not be reserved in advance; trying again", "error", err)
		}
	}()
}
