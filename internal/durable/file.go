package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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

// MakeDirs makes a directory and its missing parents, durably, and accessible only to their
// owner. A directory made by root is given to the owner of its parent.
func MakeDirs(path string) error {
	parent := filepath.Dir(path)
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := MakeDirs(parent); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	fileowner.Give(dir, path, parent)
	return errors.Join(dir.Close(), SyncDir(parent))
}
