//go:build unix

package fileowner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// ownerOf returns the owner of a directory, unless that is root, or everybody may write there.
func ownerOf(dir *os.Root) (uid, gid int, ok bool) {
	info, err := dir.Stat(".")
	if err != nil || os.Geteuid() != 0 || info.Mode()&0o002 != 0 {
		return 0, 0, false
	}
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid), st.Uid != 0
}

// isNew reports whether a file is root's, is empty, is in a directory by the name with which
// it was opened, and has no other name. The directory's owner may have put a link there to a
// file that must stay root's.
func isNew(file *os.File, dir *os.Root) bool {
	opened, err := file.Stat()
	found, foundErr := dir.Lstat(filepath.Base(file.Name()))
	if err != nil || foundErr != nil || !os.SameFile(opened, found) || opened.Sys().(*syscall.Stat_t).Uid != 0 {
		return false
	}
	if opened.IsDir() {
		names, err := file.Readdirnames(1)
		return len(names) == 0 && err == io.EOF
	}
	return opened.Mode().IsRegular() && opened.Size() == 0 && opened.Sys().(*syscall.Stat_t).Nlink == 1
}

// Explain adds to an error what helps if this process may not use a directory, or its files
// that match a pattern. A command that gives the directory to a user may take it from a group.
func Explain(err error, dir, files string) error {
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; if systemd protects it, add ReadWritePaths=%s to the unit", err, dir)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w; this process runs as user %d, who must be able to enter all that is above %s, and to write there and to its files %s: "+
			"make that user their owner (chown), or add it to their group (usermod -aG) and restart", err, os.Geteuid(), dir, files)
	}
	return err
}
