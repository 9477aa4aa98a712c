// Package fileowner keeps root from locking out the owners of directories with the files
// that it makes there, and says what helps those who are locked out.
package fileowner

import "os"

// Give gives a file or directory that root has made to another owner. That is the owner
// of the first heir that exists and does not belong to root. It does nothing if this
// process does not run as root, if the file belongs to another user, or if it has other
// names. If the system does not allow the change, the file stays as it is: root can still
// use it.
func Give(file *os.File, path string, heirs ...string) {
	uid, gid, ok := ownerOf(heirs)
	if ok && isRoots(file, path) {
		_ = file.Chown(uid, gid)
	}
}
