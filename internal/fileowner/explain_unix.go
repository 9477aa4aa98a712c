//go:build unix

package fileowner

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Explain adds to an error what helps if this process may not use a directory, or its files
// that match a pattern. It names no command for all cases: one that gives the directory to
// a user can take it from the group that shares it.
func Explain(err error, dir, files string) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w; if systemd protects it, add ReadWritePaths=%s to the unit", err, dir)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w; this process runs as user %d, who must be able to enter all that is above %s, and to write there and to its files %s: "+
			"make that user their owner (chown), or add it to their group (usermod -aG), and start again", err, os.Geteuid(), dir, files)
	}
	return err
}
