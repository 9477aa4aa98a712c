//go:build unix && !aix && !solaris

// Package dir does what the lock-file store needs from the operating system: it makes,
// lists and watches a directory, and links and unlinks files there. Its errors are bare:
// the store knows what it was doing to which file.
package dir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/durable"
)

// Change is what has happened to a file.
type Change uint8

// The changes that a [Watch] reports.
const (
	Appeared Change = iota
	Vanished
)

// pollInterval is how often a directory should be listed where nothing reports changes.
const pollInterval = 5 * time.Millisecond

// ErrNotOurs means that a name leads to something that no process of ours has put there.
var ErrNotOurs = errors.New("it is not a plain file of Orderly; remove it")

// ID is the identity of a file on this machine.
type ID struct{ dev, ino uint64 }

// Info is what the system says about a file.
type Info struct {
	ID      ID
	Links   int
	Size    int64
	Changed time.Time // its content; or a name, if it has several
	user    uint32
	group   uint32
	mode    uint32
}

// Dir is an open directory. Its files are reached through it, wherever it is moved.
type Dir struct {
	path string
	fd   int
	info Info // when it was opened
}

// Make opens the directory for a path, and makes it and its parents if they are missing. If
// everybody may write to it, it opens a directory of this user's own there. It refuses
// network file systems.
func Make(path string) (*Dir, error) {
	existing := path
	for _, missing := range Missing(path) {
		existing = filepath.Dir(missing)
	}
	if err := refuseNetwork(existing); err != nil { // before anything is made there
		return nil, err
	}
	if err := durable.MakeDirs(path, 0o750); err != nil {
		return nil, err
	}
	d, err := open(unix.AT_FDCWD, path)
	if err == nil && d.info.mode&0o002 != 0 {
		d, err = d.openOwn()
	}
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(refuseNetwork(d.path), d.checkSticky()); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Missing lists a directory and its parents that do not exist, the deepest first.
func Missing(path string) (paths []string) {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			break
		}
		paths = append(paths, path)
	}
	return paths
}

func refuseNetwork(path string) error {
	kind := networkFileSystem(path)
	if kind == "" {
		return nil
	}
	return fmt.Errorf("it is on a network file system (%s), where locks or notifications do not reach other machines; "+
		"use a local directory, or an engine for several machines, such as etcd", kind)
}

// OwnIn is the path of this user's own directory in one that everybody may write to.
func OwnIn(path string) string {
	return filepath.Join(path, "orderly-"+strconv.Itoa(os.Geteuid()))
}

// openOwn opens this user's own directory in one that everybody may write to, which it closes.
// Users may exchange what is at a path at any moment. So everything is done to what is open, and
// no link is followed.
func (d *Dir) openOwn() (*Dir, error) {
	defer d.Close()
	if d.info.mode&unix.S_ISVTX == 0 {
		return nil, errors.New("everybody may write there, and may replace the directories of others; set its sticky bit (chmod +t), or choose another directory")
	}
	user, path := os.Geteuid(), OwnIn(d.path)
	if err := unix.Mkdirat(d.fd, filepath.Base(path), 0o700); err != nil && err != unix.EEXIST {
		return nil, &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	own, err := open(d.fd, path)
	if err == nil && (int(own.info.user) != user || own.info.mode&0o022 != 0) {
		own.Close()
		err = unix.EPERM
	}
	if err != nil {
		return nil, fmt.Errorf("everybody may write there, and %s is no directory that belongs to user %d alone; remove it, or choose another directory: %w", path, user, err)
	}
	if err := unix.Fchmod(own.fd, 0o700); err != nil { // others may not even read names
		own.Close()
		return nil, &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	return own, nil
}

// open opens a directory by its path, or in another directory by the last part of the path,
// which may be no link.
func open(in int, path string) (*Dir, error) {
	name, flags := path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC
	if in != unix.AT_FDCWD {
		name, flags = filepath.Base(path), flags|unix.O_NOFOLLOW
	}
	fd, err := unix.Openat(in, name, flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := Stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &Dir{path, fd, info}, nil
}

// checkSticky returns an error if a sticky bit keeps this user from removing files of others.
func (d *Dir) checkSticky() error {
	if user := os.Geteuid(); d.info.mode&unix.S_ISVTX != 0 && user != 0 && user != int(d.info.user) {
		return errors.New("its sticky bit keeps this user from reaping tickets of others; remove the bit (chmod -t)")
	}
	return nil
}

// Path returns the path by which the directory was opened.
func (d *Dir) Path() string { return d.path }

// Close closes the directory.
func (d *Dir) Close() { _ = unix.Close(d.fd) }

// ErrReplaced means that a path leads to another file, or to none.
var ErrReplaced = errors.New("the lock directory or its guard was replaced")

// Here reports whether the path still leads to this directory, as far as that can be known.
func (d *Dir) Here() bool { return d.Check(d.path, d.info.ID) != ErrReplaced }

// Check returns an error unless a file is still the one that it was. A file is an absolute path,
// or a name in the directory, wherever that was moved.
func (d *Dir) Check(file string, id ID) error {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, file, &st, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == nil && infoOf(&st).ID != id {
		return ErrReplaced
	}
	return err
}

// The rights of the directory's group on a file.
const (
	GroupReads  = 0o040
	GroupWrites = 0o060
)

// Create makes a file, which must not exist, and opens it. The group gets some rights, as far
// as the directory's mode allows.
func (d *Dir) Create(name string, group uint32) (fd int, err error) {
	fd, err = d.openat(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err == nil {
		d.Adopt(fd, group)
	}
	return fd, err
}

// Adopt gives a file of root to the directory's owner, and opens it to the directory's
// group as far as the directory's mode allows. If the system does not allow the first, as
// in a container whose root lacks the capability, only root can use the file. If the file
// belongs to another group and that cannot be changed, it is not opened to that one.
func (d *Dir) Adopt(fd int, group uint32) {
	dir, dirErr := Stat(d.fd)
	file, err := Stat(fd)
	if err != nil || dirErr != nil {
		return
	}
	if file.user == 0 && dir.user != 0 && os.Geteuid() == 0 {
		_ = unix.Fchown(fd, int(dir.user), -1)
	}
	if file.group != dir.group && unix.Fchown(fd, -1, int(dir.group)) != nil {
		return
	}
	if mode := file.mode&0o777 | dir.mode&group; mode != file.mode&0o777 {
		_ = unix.Fchmod(fd, mode)
	}
}

// Mark makes an empty file, unless it exists.
func (d *Dir) Mark(name string) error {
	fd, err := d.Create(name, GroupWrites)
	if err == nil || err == unix.EEXIST {
		_ = unix.Close(fd)
		return nil
	}
	return err
}

// OpenFile opens an existing file for reading, and perhaps for writing. The error is
// [ErrNotOurs] if it is not a plain file.
func (d *Dir) OpenFile(name string, access int) (fd int, info Info, err error) {
	fd, err = d.openat(name, access)
	if err == nil {
		if info, err = Stat(fd); err == nil && info.mode&unix.S_IFMT == unix.S_IFREG {
			return fd, info, nil
		}
		_ = unix.Close(fd)
	}
	if err == nil || err == unix.ELOOP || err == unix.ENXIO || err == unix.EISDIR { // a symbolic link, a socket or a directory
		err = ErrNotOurs
	}
	return -1, info, err
}

// openat never follows a symbolic link, and does not wait for a pipe.
func (d *Dir) openat(name string, flags int) (fd int, err error) {
	return unix.Openat(d.fd, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
}

// Info returns what the system says about a file.
func (d *Dir) Info(name string) (Info, error) {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return infoOf(&st), err
}

// Stat returns what the system says about an open file.
func Stat(fd int) (Info, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return infoOf(&st), err
}

func infoOf(st *unix.Stat_t) Info {
	changed := st.Mtim
	if st.Nlink > 1 { // perhaps an owner file: writes to mapped memory need not show
		changed = st.Ctim
	}
	return Info{ // the fields have other types on other systems
		ID: ID{uint64(st.Dev), st.Ino}, Links: int(st.Nlink), Size: st.Size, //nolint:unconvert
		user: st.Uid, group: st.Gid, mode: uint32(st.Mode), Changed: time.Unix(changed.Unix()), //nolint:unconvert
	}
}

// Link gives a file of the directory a second name there.
func (d *Dir) Link(from, to string) error { return unix.Linkat(d.fd, from, d.fd, to, 0) }

// TryLink is Link for a name that is removed again. It says so if there are no hard links.
func (d *Dir) TryLink(from, to string) error {
	err := d.Link(from, to)
	if err == unix.EPERM || err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.ENOTSUP {
		return fmt.Errorf("its file system has no hard links, use another directory: %w", err)
	}
	return errors.Join(err, d.Unlink(to))
}

// Unlink removes a name of a file. It is not an error if there is none.
func (d *Dir) Unlink(name string) error {
	if err := unix.Unlinkat(d.fd, name, 0); err != unix.ENOENT {
		return err
	}
	return nil
}

// Rename renames a file.
func (d *Dir) Rename(from, to string) error { return unix.Renameat(d.fd, from, d.fd, to) }

// List returns the names of all files. A directory that was removed has none.
func (d *Dir) List() ([]string, error) {
	fd, err := d.openat(".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

// Sync flushes a file and the directory to the disk. File systems without a disk do
// nothing, or do not support it.
func (d *Dir) Sync(fd int) error {
	for _, fd := range []int{fd, d.fd} {
		if err := unix.Fsync(fd); err != nil && err != unix.EINVAL && err != unix.ENOSYS && err != unix.ENOTSUP {
			return err
		}
	}
	return nil
}

// Write writes the whole text at an offset of a file. If the disk gets full, the first call writes a part,
// and the second one says why.
func Write(fd int, text []byte, at int64) error {
	for len(text) > 0 {
		n, err := unix.Pwrite(fd, text, at)
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return err
		}
		text, at = text[n:], at+int64(n)
	}
	return nil
}
