package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Bug: root followed a link that the directory's owner had put there, and made its target.
func TestLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "nologin"), filepath.Join(dir, "lock")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if file, err := Lock(t.Context(), path); err == nil {
		t.Error("locked " + file.Name())
	}
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target of the link: %v", err)
	}
}
