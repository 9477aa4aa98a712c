// Package durable makes changes to files survive a power failure.
package durable

import (
	"errors"
	"os"
	"runtime"
)

// SyncDir makes all earlier changes of a directory's entries durable. Windows has no such
// call and needs none.
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
