//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// outsideDir is a lock directory seen from outside: without its guard, and without
// notifications of changes.
type outsideDir struct {
	*osDir
	private bool   // not everybody may write to the directory
	user    uint32 // the user whose files count, unless it is private
	works   bool   // that user has a guard there, unless it is private
}

// openOutside opens a directory for inspection.
func openOutside(path string) (*outsideDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding lock directory: %w", err)
	}
	dir, err := openRetry(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &StorageError{"opening lock directory", path, err}
	}
	d := &outsideDir{osDir: &osDir{path: path, clock: time.Now, dir: dir, guard: -1}}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		d.close()
		return nil, &StorageError{"reading the mode of lock directory", path, err}
	}
	d.fileMode.Store(fileModeIn(uint32(st.Mode)))
	d.private = st.Mode&0o002 == 0
	return d, nil
}

// byUser returns the directory as each of its users sees it. If everybody may write to
// it, each user has separate queues. Then there is a view for each user with a guard or a
// pause, and for this process's user.
func (d *outsideDir) byUser() ([]*outsideDir, error) {
	if d.private {
		return []*outsideDir{d}, nil
	}
	names, err := d.list()
	if err != nil {
		return nil, &StorageError{"listing lock directory", d.path, err}
	}
	works := map[uint32]bool{uint32(unix.Geteuid()): false}
	for _, name := range names {
		var st unix.Stat_t
		guard := strings.HasPrefix(name, guardFile)
		if (guard || strings.HasPrefix(name, pauseFiles)) && unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			works[st.Uid] = works[st.Uid] || guard
		}
	}
	var views []*outsideDir
	for _, user := range slices.Sorted(maps.Keys(works)) {
		view := *d
		view.user, view.works = user, works[user]
		views = append(views, &view)
	}
	return views, nil
}

// pauses reports whether a pause file counts here: it must belong to the view's user or
// to root.
func (d *outsideDir) pauses(name string) bool {
	_, _, err := d.whose(name)
	return err == nil || errors.Is(err, errNotOurs) && ofRoot(filepath.Join(d.path, name))
}

// onlyLooks reports whether this is root's view, root does not work in the directory, and
// other users do.
func (d *outsideDir) onlyLooks(views []*outsideDir) bool {
	return !d.private && d.user == 0 && !d.works && slices.ContainsFunc(views, func(other *outsideDir) bool { return other.works })
}

// ofRoot reports whether a file belongs to root.
func ofRoot(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Uid == 0
}

// own returns the directory as this process's user sees it.
func (d *outsideDir) own() *outsideDir {
	view := *d
	view.user = uint32(unix.Geteuid())
	return &view
}

// mayMark reports whether this process can make files that belong to the view's user.
func (d *outsideDir) mayMark() bool { return d.private || ourUser(d.user) || unix.Geteuid() == 0 }

// whose identifies a file and its user. The error is errNotOurs if that user's files do
// not count here.
func (d *outsideDir) whose(name string) (fileID, string, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileID{}, "", &fs.PathError{Op: "stat", Path: filepath.Join(d.path, name), Err: err}
	}
	if !d.private && d.user != st.Uid {
		return fileID{}, "", errNotOurs
	}
	return fileID{uint64(st.Dev), st.Ino}, userName(st.Uid), nil
}

// mark makes an empty file that belongs to the user who works in the directory. So the
// engine can remove it even where users may only remove their own files. The error is
// errTaken if something else has the name.
func (d *outsideDir) mark(name string) error {
	fd, err := d.makeEmpty(name)
	if errors.Is(err, fs.ErrExist) && d.counts(name) {
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		err = errTaken
	}
	if err != nil {
		return &StorageError{"making", filepath.Join(d.path, name), err}
	}
	defer unix.Close(fd)
	if user, ok := d.worker(); ok && unix.Geteuid() == 0 {
		// If this fails, the caller removes the file once the owner has obeyed.
		_ = unix.Fchown(fd, int(user), -1)
	}
	return nil
}

// counts reports whether a mark is there already: an empty file, with no other name, of a
// user whose files count here.
func (d *outsideDir) counts(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isEmptyFile(&st) && (d.private || d.user == st.Uid)
}

// mayRemove reports whether this process's user may remove a file. In a directory with the
// sticky bit, only root, the file's user and the directory's may.
func (d *outsideDir) mayRemove(name string) bool {
	var dir, st unix.Stat_t
	user := uint32(unix.Geteuid())
	if user == 0 || unix.Fstat(d.dir, &dir) != nil || dir.Mode&unix.S_ISVTX == 0 || dir.Uid == user {
		return true
	}
	return unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Uid == user
}

// worker returns the user who works in the directory, if it is known.
func (d *outsideDir) worker() (user uint32, ok bool) {
	if !d.private {
		return d.user, true
	}
	var st unix.Stat_t
	err := unix.Fstatat(d.dir, guardFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Uid, err == nil
}

// userName names a user for people.
func userName(uid uint32) string { return "user " + strconv.FormatUint(uint64(uid), 10) }
