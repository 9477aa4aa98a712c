//go:build unix && !aix && !solaris

package serializer

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

func (d *osDir) create(name string, stamp uint64, k ownerKind) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.noteOutLocked(stamp, k); err != nil {
		return &StorageError{"making lock file", filepath.Join(d.path, name), err}
	}
	err := d.makeLocked(name, k)
	if err != nil {
		d.strike(stamp)
	}
	return err
}

// noteOutLocked writes a ticket's number to the ledger. A damaged ledger is replaced.
func (d *osDir) noteOutLocked(stamp uint64, k ownerKind) error {
	if err := d.needLedgerLocked(k); err != nil {
		return err
	}
	err := d.ledgerFile.ledger.add(stamp)
	if err != errLedgerGone {
		return err
	}
	d.ledgerFile = nil
	if err := d.needLedgerLocked(k); err != nil {
		return err
	}
	return d.ledgerFile.ledger.add(stamp)
}

// strike strikes out the number of a local ticket.
func (d *osDir) strike(stamp uint64) {
	d.striking.Lock()
	defer d.striking.Unlock()
	for _, l := range d.ledgers {
		l.strike(stamp)
	}
}

func (d *osDir) leave(name string, stamp uint64) error {
	d.strike(stamp)
	return d.remove(name)
}

func (d *osDir) restore(name string, k ownerKind) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.makeLocked(name, k)
}

// makeLocked makes a ticket's file.
func (d *osDir) makeLocked(name string, k ownerKind) error {
	err := d.linkLocked(name, k)
	if err == unix.EMLINK {
		// The owner file has as many links as the file system allows.
		d.giveUpLocked(k)
		err = d.linkLocked(name, k)
	}
	if noHardLinks(err) {
		d.noLinks.Store(true)
	}
	if d.noLinks.Load() {
		err = d.createFileLocked(name, k)
	}
	if err != nil {
		return &StorageError{"making lock file", filepath.Join(d.path, name), err}
	}
	return nil
}

// noHardLinks reports whether an error of link means that this file system or directory
// does not support hard links.
func noHardLinks(err error) bool {
	return err == unix.EPERM || err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.ENOTSUP
}

func (d *osDir) linkLocked(name string, k ownerKind) error {
	if d.noLinks.Load() {
		return unix.EOPNOTSUPP
	}
	o, err := d.ownerLocked(k)
	if err != nil {
		return err
	}
	err = linkat(d.dir, o.name, name)
	if err == unix.ENOENT {
		if o, err = d.renewLocked(o); err == nil { // somebody else removed the owner file
			err = linkat(d.dir, o.name, name)
		}
	}
	return err
}

// createFileLocked makes a ticket as a separate locked file.
func (d *osDir) createFileLocked(name string, k ownerKind) error {
	o, err := d.newOwnerFile(name, k, false)
	if err != nil {
		return err
	}
	if old := d.tickets[name]; old != nil { // somebody else removed its file
		old.close()
		delete(d.ids, old.id)
	}
	d.tickets[name], d.ids[o.id] = o, true
	return nil
}

func (d *osDir) remove(name string) error {
	err := unlinkat(d.dir, name)
	if err == nil || err == unix.ENOENT {
		d.forget(name)
		return nil
	}
	if d.isDirectory(name) {
		err = errNotFile
	}
	return &StorageError{"removing lock file", filepath.Join(d.path, name), err}
}

func (d *osDir) isDirectory(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// forget closes a ticket that was a separate file.
func (d *osDir) forget(name string) {
	if !d.noLinks.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.tickets[name]; o != nil {
		o.close()
		delete(d.tickets, name)
		delete(d.ids, o.id)
	}
}
