// Package fileowner keeps root from locking others out of their own directories
// with the files that it makes there.
package fileowner

import "os"

// Give gives a file or directory at path, which root has made, to the owner of
// the first of the heirs that exists and is not root's. It leaves alone what
// belongs to somebody else, what has other names, and all if this process is not
// root's. Where the system does not let it, the file stays as it is: root can
// still use it.
func Give(file *os.File, path string, heirs ...string) {
	uid, gid, ok := ownerOf(heirs)
	if ok && isRoots(file, path) {
		_ = file.Chown(uid, gid)
	}
}
