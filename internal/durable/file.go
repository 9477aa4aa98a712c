package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/orderly-http/caddy-orderly/internal/fileowner"
)

// ReplaceFile puts a file with text in the place of the one at path, all or
// nothing, so that it lasts. On the way it is at path.tmp: callers keep each other
// out. What root writes belongs to the owner of the file before, or of the
// directory.
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

// writeNew writes a file that must not be there. It follows no link that somebody
// has put there meanwhile.
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

// MakeDirs makes a directory and those above it that are missing, for their owner
// alone. What root makes belongs to the owner of the directory above.
func MakeDirs(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDirs(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil // another process was faster
		}
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	fileowner.Give(dir, path, parent)
	return dir.Close()
}
