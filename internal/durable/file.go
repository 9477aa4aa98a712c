// Package durable makes changes to files survive a power failure.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/orderly-http/caddy-orderly/internal/fileowner"
)

// ReplaceFile replaces the file at path with one that contains text, atomically and
// durably. The new file is at path.tmp at first, so callers must exclude each other. If
// root makes it, it is given to the owner of the replaced file, or else of the directory.
func ReplaceFile(path, text string) error {
	temporary := path + ".tmp"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeNew(temporary, text, path, filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// writeNew writes a file that must not exist. It follows no link that somebody may have
// put there.
func writeNew(path, text string, heirs ...string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	fileowner.Give(file, path, heirs...)
	_, err = file.WriteString(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

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
	if info, err = os.Stat(parent); err != nil {
		return err
	}
	if info.Mode()&0o002 == 0 {
		dir, err := os.Open(path)
		if err != nil {
			return err
		}
		fileowner.Give(dir, path, parent)
		_ = dir.Close() // it was only read
	}
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
