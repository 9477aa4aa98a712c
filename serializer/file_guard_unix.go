//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// In a directory that everybody may write to, each user has separate queues with a
// separate guard. The first user's guard has the plain name; the names of the others
// contain their user IDs. Somebody may have created a file of that name in advance, to
// obstruct the user. Then the next name counts. All processes of a user agree on the
// name: a guard of theirs that exists takes precedence over a name that is free.
//
// In a directory with the sticky bit, users cannot delete the files of others. So each
// user can obstruct each name only once, and a guard that is in use stays.

// maxGuards is the number of names that a guard may have.
const maxGuards = 32

// guardNames are the possible names of a user's guard, in order of precedence.
func guardNames(everybody bool, uid int) []string {
	if !everybody {
		return []string{guardFile}
	}
	own := guardFile + "-" + strconv.Itoa(uid)
	names := []string{guardFile, own}
	for i := 2; len(names) < maxGuards; i++ {
		names = append(names, own+"-"+strconv.Itoa(i))
	}
	return names
}

var errNotPlain = errors.New("it is not a plain file of its own; remove it")

// openGuard opens the guard, or makes it if it is missing.
func (d *osDir) openGuard() error {
	if err := d.readModes(); err != nil {
		return err
	}
	for range 100 { // other processes may make and remove files at the same time
		name, there, err := d.findGuard()
		if err == nil {
			err = d.takeGuard(name, there)
		}
		if there && err == unix.ENOENT || err == unix.EEXIST {
			continue
		}
		if err != nil {
			return &StorageError{"opening guard file", d.guardPath, d.notOpen(name, err)}
		}
		return nil
	}
	return &StorageError{"opening guard file", d.guardPath, errors.New("another program keeps making and removing it")}
}

// readModes finds out who owns the directory, and who may write to it.
func (d *osDir) readModes() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.dir, &st); err != nil {
		return &StorageError{"reading the mode of lock directory", d.path, err}
	}
	d.everybody = st.Mode&0o002 != 0
	d.fileMode.Store(fileModeIn(uint32(st.Mode)))
	d.uid = st.Uid
	d.gid.Store(st.Gid)
	d.where = fileID{uint64(st.Dev), st.Ino}
	d.gives = unix.Geteuid() == 0 && !d.everybody && (st.Uid != 0 || st.Gid != 0)
	return nil
}

// fileModeIn is the mode of files in a directory with a given mode. The directory's group
// may use them as it may use the directory, unless everybody may write there.
func fileModeIn(dir uint32) uint32 {
	if dir&0o002 != 0 {
		return 0o600
	}
	return 0o600 | dir&0o060
}

// widen gives the permanent files the group of the directory, and the permissions that its
// mode has allowed since they were made. Otherwise, the group could not use a directory that
// was opened to it while this process worked there. Permissions are never taken away: the
// directory itself keeps others out.
func (d *osDir) widen() {
	var st unix.Stat_t
	if d.everybody || unix.Fstat(d.dir, &st) != nil {
		return
	}
	mode := d.fileMode.Load() | fileModeIn(uint32(st.Mode))
	if mode == d.fileMode.Load() && st.Gid == d.gid.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fileMode.Store(mode)
	d.gid.Store(st.Gid)
	for _, o := range d.ownerFilesLocked() {
		d.openToGroup(o.fd)
	}
	d.widenGuard(d.guard)
}

// widenGuard gives the guard the group of the directory, and the permissions that its mode
// allows. The umask may have removed them, or the directory had another mode when the guard
// was made. Only the guard's user can do that; others use the file as it is.
func (d *osDir) widenGuard(fd int) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && looksLikeGuard(fd, st.Size) {
		d.openToGroup(fd)
	}
}

// openToGroup opens a file to the directory's group. If the file belongs to another group
// and this process may not change that, it stays as it is: the other group must not get in.
func (d *osDir) openToGroup(fd int) {
	var st unix.Stat_t
	gid := d.gid.Load()
	if unix.Fstat(fd, &st) != nil || st.Gid != gid && unix.Fchown(fd, -1, int(gid)) != nil {
		return
	}
	if mode := d.fileMode.Load(); mode&^uint32(st.Mode) != 0 {
		_ = unix.Fchmod(fd, uint32(st.Mode)&0o777|mode)
	}
}

// findGuard returns the name of the guard, and whether the file exists.
func (d *osDir) findGuard() (name string, there bool, err error) {
	names := guardNames(d.everybody, unix.Geteuid())
	free := -1
	for i, name := range names {
		d.guardNumber, d.guardPath = i, filepath.Join(d.path, name)
		switch ours, err := d.isOurGuard(name); {
		case err == unix.ENOENT && free < 0:
			free = i
		case err == unix.ENOENT:
		case err != nil:
			return name, false, err
		case ours:
			return name, true, nil
		}
	}
	if free < 0 {
		return guardFile, false, fmt.Errorf("all its names, up to %s, belong to others, and everybody may write to the directory; "+
			"choose a directory of your own: %w", filepath.Base(d.guardPath), errNotOurs)
	}
	d.guardNumber, d.guardPath = free, filepath.Join(d.path, names[free])
	return names[free], false, nil
}

// isOurGuard reports whether a file is a guard that counts for this user. The error is
// ENOENT if there is no such file.
func (d *osDir) isOurGuard(name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err != nil:
		return false, err
	case d.everybody && !ourUser(st.Uid):
		return false, nil
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1:
		return false, errNotPlain
	}
	return true, nil
}

// takeGuard opens the guard. The error is EEXIST or ENOENT if the file was made or
// removed since findGuard.
func (d *osDir) takeGuard(name string, there bool) error {
	flags := unix.O_RDWR
	if !there {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	fd, err := d.openat(name, flags, d.fileMode.Load())
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	switch { // the name may refer to another file by now
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1:
		err = errNotPlain
	case d.everybody && !ourUser(st.Uid):
		err = errNotOurs
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	d.guard, d.id = fd, fileID{uint64(st.Dev), st.Ino}
	if !there || d.gives && st.Uid == 0 && looksLikeGuard(fd, st.Size) {
		d.give(fd)
	}
	d.widenGuard(fd)
	return nil
}

// looksLikeGuard reports whether a file may be given away or opened to others. A user who
// may write to the directory could have moved a different file here.
func looksLikeGuard(fd int, size int64) bool {
	if size == 0 {
		return true
	}
	var text [guardSize]byte
	n, err := unix.Pread(fd, text[:], 0)
	if err != nil || n != guardSize || text[guardSize-1] != '\n' {
		return false
	}
	_, ok := parseDigits(string(text[:stampDigits]))
	return ok
}

// precedes reports whether a guard of this user now exists under a name with precedence
// over the one in use. Then that guard is the one that counts.
func (d *osDir) precedes() bool {
	if d.guardNumber == 0 {
		return false
	}
	for _, name := range guardNames(d.everybody, unix.Geteuid())[:d.guardNumber] {
		if ours, err := d.isOurGuard(name); ours && err == nil {
			return true
		}
	}
	return false
}

func (d *osDir) check() error {
	var st unix.Stat_t
	err := unix.Lstat(d.guardPath, &st)
	switch {
	case err == unix.ENOENT, err == nil && (fileID{uint64(st.Dev), st.Ino}) != d.id:
		return errReplaced
	case err != nil:
		return &StorageError{"checking guard file", d.guardPath, err}
	case d.precedes():
		return errReplaced
	}
	return nil
}
