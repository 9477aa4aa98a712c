// Package durable makes changes last through a power failure.
package durable

import (
	"errors"
	"os"
	"runtime"
)

// SyncDir makes last what was made, renamed or removed in a directory so far.
// Windows has no such call and needs none.
func SyncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
