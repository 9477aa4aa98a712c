package dir

import "golang.org/x/sys/unix"

// RenameNew renames a file, unless there is one of the new name. Then the error is EEXIST.
func (d *Dir) RenameNew(from, to string) error {
	err := unix.Renameat2(d.fd, from, d.fd, to, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS { // an old file system, or kernel
		return d.Rename(from, to)
	}
	return err
}
