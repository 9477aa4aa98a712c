//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

func (d *osDir) checksUsers() bool { return d.everybody }

func (d *osDir) identify(name string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: filepath.Join(d.path, name), Err: err}
	}
	return d.identity(&st)
}

// age counts from the last change of the file's inode. Unlike the other times, nobody can
// set that one back. Touching the guard tells what the file system's clock says now. If
// the clock was set since then, usually soon after a boot, a file may look older than it
// is. So no file counts as older than the uptime.
func (d *osDir) age(name string) time.Duration {
	touchFile(d.guard)
	var now, st unix.Stat_t
	if unix.Fstat(d.guard, &now) != nil || unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return min(max(time.Duration(now.Ctim.Nano()-st.Ctim.Nano()), 0), uptime())
}

func (d *osDir) identity(st *unix.Stat_t) (fileID, error) {
	if d.everybody && !ourUser(st.Uid) {
		return fileID{}, errNotOurs
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}

// osProbe is an owner file of another process.
type osProbe struct {
	fd    int
	file  fileID
	about Owner

	ledger *otherLedger // nil until it is needed, or if there is none
	asked  bool
}

func (d *osDir) probe(name string) (_ ownerProbe, err error) {
	fd, err := d.openat(name, unix.O_RDONLY, 0)
	if err == unix.ELOOP || err == unix.ENXIO {
		return nil, errUnowned // a symbolic link or a socket
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: d.notOpen(name, err)}
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: filepath.Join(d.path, name), Err: err}
	}
	id, err := d.identity(&st)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errUnowned
	}
	about, err := readOwner(fd)
	if err != nil {
		return nil, err
	}
	return &osProbe{fd: fd, file: id, about: about}, nil
}

func readOwner(fd int) (Owner, error) {
	text := make([]byte, maxOwnerSize)
	n, err := unix.Pread(fd, text, 0)
	if err != nil {
		return Owner{}, fmt.Errorf("reading owner file: %w", err)
	}
	return parseOwner(text[:n])
}

func (p *osProbe) id() fileID   { return p.file }
func (p *osProbe) owner() Owner { return p.about }

func (p *osProbe) close() {
	if p.ledger != nil {
		p.ledger.close()
	}
	_ = unix.Close(p.fd)
}

// keepsLedger is false for all files of older versions.
func (p *osProbe) keepsLedger() bool {
	if !p.asked {
		p.ledger, p.asked = openLedger(p.fd), true
	}
	return p.ledger != nil
}

func (p *osProbe) standing(stamp uint64) standing {
	if !p.keepsLedger() {
		return isAbsent
	}
	return p.ledger.standing(stamp)
}

func (p *osProbe) outstanding() (stamps []uint64, ok bool) {
	if !p.keepsLedger() {
		return nil, true
	}
	return p.ledger.outstanding()
}

func (p *osProbe) dead() (bool, error) { return ownerIsDead(uintptr(p.fd)) }

func (d *osDir) mark(name string) error {
	fd, err := d.makeEmpty(name)
	if errors.Is(err, fs.ErrExist) {
		var st unix.Stat_t
		if unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isEmptyFile(&st) && (!d.everybody || ourUser(st.Uid)) {
			return nil
		}
		err = errTaken
	}
	if err != nil {
		return &StorageError{"making", filepath.Join(d.path, name), err}
	}
	d.give(fd)
	return unix.Close(fd)
}

// makeEmpty makes an empty file, and nothing if the name is taken. The caller may give the
// file away, so it must not be a link to another one.
func (d *osDir) makeEmpty(name string) (fd int, err error) {
	return d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, d.fileMode.Load())
}

func isEmptyFile(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 && st.Nlink == 1
}
