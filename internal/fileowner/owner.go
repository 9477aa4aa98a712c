// Package fileowner keeps root from locking out the owners of directories with the files
// that it makes there, and says what helps those who are locked out.
package fileowner

import (
	"os"
	"path/filepath"
)

// Give gives a file or directory that root has just made to the owner of the directory in the
// name with which it was opened. It does nothing if this process does not run as root, if
// everybody may write to the directory, if the file is not in it, belongs to another user or has
// other names. If the system does not allow the change, the file stays as it is: root can still
// use it.
//
// It decides by what is open. The owner of a directory can exchange what is at a path
// between two looks, put links there, and rename what root has in the directory. So only
// what is empty is given away: it holds no secret.
func Give(file *os.File) {
	dir, err := os.OpenRoot(filepath.Dir(file.Name()))
	if err != nil {
		return
	}
	if uid, gid, ok := ownerOf(dir); ok && isNew(file, dir) {
		_ = file.Chown(uid, gid)
	}
	_ = dir.Close() // it was only read
}
