//go:build unix && !aix && !solaris

package serializer

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ownerFile is a local owner file, held locked.
type ownerFile struct {
	name   string
	kind   ownerKind
	fd     int
	id     fileID
	ledger *ownLedger // nil, except in ledgerFile and its predecessors
}

func (o *ownerFile) close() {
	if o.ledger != nil {
		o.ledger.close()
	}
	_ = unix.Close(o.fd)
}

// needLedgerLocked makes an owner file with a ledger if no owner file has one.
func (d *osDir) needLedgerLocked(k ownerKind) error {
	if d.ledgerFile != nil {
		return nil
	}
	if d.owners[k] != nil {
		d.giveUpLocked(k)
	}
	_, err := d.ownerLocked(k)
	return err
}

// giveUpLocked makes the next ticket of a kind use another owner file.
func (d *osDir) giveUpLocked(k ownerKind) {
	d.used = append(d.used, d.owners[k])
	delete(d.owners, k)
}

// restoreOwner restores the name of an owner file that has tickets out: a process that
// starts to work in the directory looks for it. A file without any name, because its
// tickets' files are gone, too, cannot get one. Then another file takes its place.
func (d *osDir) restoreOwner(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.ownerFilesLocked() {
		if o.name != name || o.ledger == nil || len(o.ledger.outstanding()) == 0 {
			continue
		}
		err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(o.fd), d.dir, name, unix.AT_SYMLINK_FOLLOW)
		if err != nil && err != unix.EEXIST {
			_, err = d.renewLocked(o)
		}
		if err != nil && err != unix.EEXIST {
			return &StorageError{"putting back owner file", filepath.Join(d.path, name), err}
		}
	}
	return nil
}

// renewLocked makes an owner file that replaces one whose name is gone. The tickets that are
// linked to the old file stay local: the lock is on the file, not on its name. But a
// process that starts to work in the directory must find them in a ledger.
func (d *osDir) renewLocked(old *ownerFile) (*ownerFile, error) {
	if d.owners[old.kind] == old {
		d.giveUpLocked(old.kind)
	}
	if d.ledgerFile == old {
		d.ledgerFile = nil
	}
	if err := d.needLedgerLocked(old.kind); err != nil {
		return nil, err
	}
	if err := d.passOnLocked(old); err != nil {
		return nil, err
	}
	return d.ownerLocked(old.kind)
}

// passOnLocked merges the ledger of an old owner file into the current one. No number is struck
// out in the meantime.
func (d *osDir) passOnLocked(old *ownerFile) error {
	if old.ledger == nil {
		return nil
	}
	d.striking.Lock()
	defer d.striking.Unlock()
	return d.ledgerFile.ledger.merge(old.ledger.outstanding())
}

// ownerFilesLocked lists the local owner files.
func (d *osDir) ownerFilesLocked() []*ownerFile {
	return slices.AppendSeq(slices.Clone(d.used), maps.Values(d.owners))
}

func (d *osDir) ownerLocked(k ownerKind) (*ownerFile, error) {
	if o := d.owners[k]; o != nil {
		return o, nil
	}
	o, err := d.newOwnerFile(ownerFiles+randomName(), k, d.ledgerFile == nil)
	if err != nil {
		return nil, err
	}
	d.owners[k], d.ids[o.id] = o, true
	if o.ledger != nil {
		d.ledgerFile = o
		d.noteLedgersLocked()
	}
	return o, nil
}

// noteLedgersLocked updates the list of ledgers.
func (d *osDir) noteLedgersLocked() {
	d.striking.Lock()
	defer d.striking.Unlock()
	d.ledgers = nil
	for _, o := range d.ownerFilesLocked() {
		if o.ledger != nil {
			d.ledgers = append(d.ledgers, o.ledger)
		}
	}
}

func randomName() string { return strings.ToLower(rand.Text()[:16]) }

// newOwnerFile makes a file, locks it, and writes its owner's text. The text comes last,
// so that a reader who finds it also finds everything else. The caller holds the guard,
// so nobody considers the file abandoned before it is locked.
func (d *osDir) newOwnerFile(name string, k ownerKind, withLedger bool) (_ *ownerFile, err error) {
	fd, err := d.openat(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, d.fileMode.Load())
	if err != nil {
		return nil, err
	}
	o := &ownerFile{name: name, kind: k, fd: fd}
	d.give(fd)
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(d.dir, name, 0)
			o.close()
		}
	}()
	if err := lockOwnerFile(uintptr(fd)); err != nil {
		return nil, err
	}
	_ = unix.Fchmod(fd, d.fileMode.Load())
	if withLedger {
		if o.ledger, err = newLedger(fd); err != nil {
			return nil, err
		}
	}
	text := self(k, d.clock()).text()
	n, err := unix.Pwrite(fd, text, 0)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return nil, fmt.Errorf("writing the owner's name: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	o.id = fileID{uint64(st.Dev), st.Ino}
	return o, nil
}

func (d *osDir) owns(id fileID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[id]
}

func (d *osDir) disown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.owners {
		d.used = append(d.used, o)
	}
	clear(d.owners)
	d.ledgerFile = nil
	for _, o := range d.used {
		_ = unix.Unlinkat(d.dir, o.name, 0)
		o.close()
	}
	d.used = nil
	clear(d.ids) // from here on, other processes' files may have the same IDs
	d.noteLedgersLocked()
}

func (d *osDir) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.ownerFilesLocked() {
		touchFile(o.fd)
	}
	touchFile(d.guard)
}

// touchFile sets the times of a file to now. That only requires permission to write to
// it; only its user could set any other time.
func touchFile(fd int) { _ = unix.Futimes(fd, nil) }
