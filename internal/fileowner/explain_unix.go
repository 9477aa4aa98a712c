//go:build unix

package fileowner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Explain adds to an error what helps if this process may not use a directory, or those of
// its files that match a pattern. That takes no rights from a group that shares it.
func Explain(err error, dir, files string) error {
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w; if systemd protects it, add ReadWritePaths=%s to the unit", err, dir)
	}
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w; this process runs as user %d%s", err, os.Geteuid(), remedy(os.Geteuid(), dir, filepath.Join(dir, files)))
	}
	return err
}

func remedy(user int, dir, files string) string {
	closed := ""
	for above := filepath.Dir(dir); above != filepath.Dir(above); above = filepath.Dir(above) {
		if unix.Access(above, unix.X_OK) == unix.EACCES {
			closed = above // and so is all below
		}
	}
	if closed != "" {
		return fmt.Sprintf(", who may not enter %s; allow that (chmod o+x), or choose another directory", closed)
	}
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return fmt.Sprintf("; to make the directory for that user: install -d -o %d -m 0750 %s", user, dir)
	}
	if unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) != nil {
		if st.Mode&0o020 != 0 && st.Gid != 0 {
			return fmt.Sprintf(", and the directory is for group %d; to add the user: usermod -aG %[1]d $(id -nu %d), then restart", st.Gid, user)
		}
		files = dir + " " + files
	}
	return fmt.Sprintf("; to give everything to that user alone: chown %d %s; chmod u+rwX %[2]s", user, files)
}
