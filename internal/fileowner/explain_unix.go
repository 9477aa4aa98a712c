//go:build unix

package fileowner

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Explain adds to an error what helps an administrator if this process may not use a
// directory, or one of its files in there, for which files is a pattern. What it says takes
// no rights from a group that shares the directory.
func Explain(err error, dir, files string) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w; if systemd protects it, add ReadWritePaths=%s to the unit", err, dir)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w; this process runs as user %d%s", err, os.Geteuid(), remedy(dir, filepath.Join(dir, files)))
	}
	return err
}

func remedy(dir, files string) string {
	if parent := closedParent(dir); parent != "" {
		return fmt.Sprintf(", who may not enter %s; allow that (chmod o+x), or choose another directory", parent)
	}
	self := strconv.Itoa(os.Geteuid())
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Sprintf("; to make the directory for that user: install -d -o %s -m 0750 %s", self, dir)
	}
	st := info.Sys().(*syscall.Stat_t)
	group := strconv.Itoa(int(st.Gid))
	if known, err := user.LookupGroupId(group); err == nil {
		group = known.Name
	}
	name := self
	if known, err := user.LookupId(self); err == nil {
		name = known.Username
	}
	switch shared := info.Mode()&0o020 != 0 && st.Gid != 0; {
	case shared && unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) == nil:
		return fmt.Sprintf("; to give the files to the directory's group: chgrp %s %s; chmod g+rw %[2]s", group, files)
	case shared:
		return fmt.Sprintf("; the directory is for group %s, so add that user to it, and restart: usermod -aG %[1]s %s", group, name)
	}
	return fmt.Sprintf("; to take the directory from user %d: chown %s %s %s; chmod u+rwX %[3]s %[4]s", st.Uid, self, dir, files)
}

// closedParent is the first directory on the way to another that this user may not search,
// or empty.
func closedParent(dir string) string {
	parent := filepath.Dir(dir)
	if parent == dir {
		return ""
	}
	if closed := closedParent(parent); closed != "" {
		return closed
	}
	if unix.Access(parent, unix.X_OK) == unix.EACCES {
		return parent
	}
	return ""
}
