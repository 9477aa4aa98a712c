package serializer

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// retirement is the state of a directory that was replaced. The directory's lock guards
// it.
type retirement struct {
	retired      bool
	vacant       bool    // when last checked, no process worked there, or it was back at its path
	unclear      *barred // why nobody can tell whether it is vacant
	hasSuccessor bool    // another directory was opened in its place; vacant was determined after that
	version      int     // number of the last change of hasSuccessor
	checked      int     // version of the last check for remaining processes
}

// unclearTime is how long it must have been impossible to tell whether a replaced
// directory is vacant. It is far longer than the engine needs to find out which files are
// barred.
const unclearTime = 5 * barredTime

// note records the result of a check. The version is the one at its beginning: a change
// since then makes the result outdated.
func (r *retirement) note(version int, vacant bool, err error) {
	switch {
	case err == nil:
		r.unclear = nil
		r.checked = version
	case r.unclear == nil:
		r.unclear = &barred{since: time.Now(), err: err}
	default:
		r.unclear.err = err
	}
	if version == r.version {
		r.vacant = err == nil && vacant
	}
}

// retirementNow returns the state at this moment.
func (d *directory) retirementNow() retirement {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retirement
}

// whyUnclear returns why nobody can tell whether a replaced directory is vacant, once that
// has lasted. Arrivals that wait for it are then refused.
func (d *directory) whyUnclear() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if unclear := d.retirement.unclear; unclear != nil && time.Since(unclear.since) >= unclearTime {
		return unclear.err
	}
	return nil
}

// setSuccessor records that another directory was opened in place of a replaced one, or
// that it is no longer there. What was known about the processes left in the replaced one
// may be outdated, since that directory may have been back in the meantime. So it is
// checked again. If the new directory is the same one with another guard, its tickets
// show who is there.
func (d *directory) setSuccessor(place fileID, opened bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retirement.version++
	d.retirement.hasSuccessor = opened
	d.retirement.vacant = opened && place == d.sys.place()
	d.wake()
}

// retire refuses all waiters and returns their tickets; the caller must remove the files.
// inside is the number of holders. It returns false if the directory was already retired.
func (d *directory) retire(why error) (inside int, lost []*ticket, retired bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.retirement.retired {
		return 0, nil, false
	}
	d.retirement.retired = true
	d.idleSince = time.Now()
	lost = d.dismissWaitingLocked(why)
	d.wake()
	return d.owned, lost, true
}

// checkVacancy gives up a replaced directory once it has no local tickets, and checks
// under its guard whether all other processes have left it. Once another directory is
// open in its place, nobody issues tickets in this one any more: processes look for the
// guard at its path.
func (d *directory) checkVacancy() {
	version, again, unused := d.nextCheck()
	if !unused || again && !d.syncer.seemsLeft() {
		return
	}
	d.sys.disown()
	last, left, err := d.lastSync()
	if err == nil && last < maxStamp {
		d.owner.noteLast(last)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retirement.note(version, left || !d.retirement.hasSuccessor && d.sys.here(), err)
}

// nextCheck reports whether only other processes may still use a replaced directory, and
// whether that was checked before.
func (d *directory) nextCheck() (version int, again, unused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.retirement
	return r.version, r.checked == r.version, r.retired && !r.vacant && !d.busyLocked()
}

// seemsLeft reports whether all known owners have left a replaced directory, or the
// directory is back. Other processes need its guard to leave it. So until then, this
// process does not take it again.
func (s *syncer) seemsLeft() bool { return len(s.owners.byID) == 0 || s.sys.here() }

// lastSync syncs a replaced directory under its guard. It returns the last number that
// was issued there, and whether no other process works there any more. After an error,
// the monitor tries again.
func (d *directory) lastSync() (last uint64, left bool, err error) {
	err = d.sys.lock()
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err == nil {
		defer d.sys.unlock()
		last, err = d.syncer.syncReplaced()
	}
	if err != nil {
		d.syncer.complainAbout("", err)
		return 0, false, err
	}
	d.syncer.reapDead()
	return last, len(d.syncer.owners.byID) == 0, nil
}

var errUnread = errors.New("it cannot be read yet")

// syncReplaced is the part of lastSync under the guard. If the directory was deleted,
// there is nothing to sync.
func (s *syncer) syncReplaced() (last uint64, err error) {
	if last, err = s.sys.last(); err != nil {
		return 0, err
	}
	if err := s.sync(true); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if s.found.owners != nil {
		return 0, &StorageError{"reading owner file", filepath.Join(s.path, s.found.owners[0]), errUnread}
	}
	return last, s.barredTicket()
}
