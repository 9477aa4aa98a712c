// Package durable makes changes of directories survive a power failure.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/orderly-http/caddy-orderly/internal/fileowner"
)

// MakeDirs makes a directory and its missing parents, durably. An administrator may start Caddy as
// root by hand, for example for `caddy validate`. That must not leave anything that the
// service cannot use. So root gives what it makes to the owner of the parent, unless
// everybody may write there.
func MakeDirs(path string, mode os.FileMode) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	if err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDirs(parent, mode); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, mode); err != nil {
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil // another process has made it
		}
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	fileowner.Give(dir)
	_ = dir.Close() // it was only read
	return SyncDir(parent)
}

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
