//go:build unix

package fileowner

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ownerOf returns the owner of the first of the paths that does not belong to root.
func ownerOf(paths []string) (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return int(st.Uid), int(st.Gid), true
		}
	}
	return 0, 0, false
}

// isRoots reports whether the file belongs to root, is the one at the path, and has no
// other name. The directory's owner may have put a link there to a file that must stay
// root's.
func isRoots(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Lstat(path)
	if err != nil || !os.SameFile(opened, found) {
		return false
	}
	st, ok := opened.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0 && (opened.IsDir() || opened.Mode().IsRegular() && st.Nlink == 1)
}

// Explain adds to an error what helps if this process may not use a directory, or its files
// that match a pattern. A command that gives the directory to a user may take it from a group.
func Explain(err error, dir, files string) error {
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; if systemd protects it, add ReadWritePaths=%s to the unit", err, dir)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w; this process runs as user %d, who must be able to enter all that is above %s, and to write there and to its files %s: "+
			"make that user their owner (chown), or add it to their group (usermod -aG), and start again", err, os.Geteuid(), dir, files)
	}
	return err
}
