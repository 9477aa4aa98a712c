//go:build unix && !aix && !solaris

package serializer

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An administrator may start Caddy as root by hand, for example for `caddy validate`.
// That must not leave anything in a service's directory that the service cannot open. So
// root gives the files that it makes to the directory's owner.

// makeDir makes a directory and its missing parents. A directory made by root is given to
// the owner of its parent, unless everybody may write to the parent.
func makeDir(path string) error {
	if st, err := os.Stat(path); err == nil {
		if !st.IsDir() {
			return &os.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, 0o750)
	if os.IsExist(err) {
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return nil // made by another process in the meantime
		}
	}
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	return giveDir(path, parent)
}

// giveDir gives a new directory to the owner of its parent. That owner may put something
// else in its place. So only what was opened is given away, and only if it is a directory
// of root, not a link.
func giveDir(path, parent string) error {
	var above, made unix.Stat_t
	if err := unix.Stat(parent, &above); err != nil {
		return &os.PathError{Op: "stat", Path: parent, Err: err}
	}
	if above.Mode&0o002 != 0 || above.Uid == 0 && above.Gid == 0 {
		return nil
	}
	fd, err := openRetry(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &made); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if made.Uid != 0 {
		return nil
	}
	if err := unix.Fchown(fd, int(above.Uid), int(above.Gid)); err != nil {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}

// give gives a file made by this process to the directory's owner. If the system does not
// allow that, as in a container whose root lacks the capability, the file stays as it is.
// Other processes of the same user can use it.
func (d *osDir) give(fd int) {
	if d.gives {
		_ = unix.Fchown(fd, int(d.uid), int(d.gid.Load()))
	}
}

// notOpen explains who owns a file that cannot be opened, and what to do.
func (d *osDir) notOpen(name string, err error) error {
	var st unix.Stat_t
	if err != unix.EACCES && err != unix.EPERM || unix.Fstatat(d.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return err
	}
	return fmt.Errorf("%w; it belongs to %s, this process to %s: give it to the directory's owner, or remove it while no process of %s works here",
		err, userName(st.Uid), userName(uint32(unix.Geteuid())), userName(st.Uid))
}
