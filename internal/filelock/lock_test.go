package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func lock(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file := lock(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 3*Poll)
	defer cancel()
	if _, err := Lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second lock gave %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock(t, path).Close(); err != nil {
		t.Fatal(err)
	}
}

// A lock on a file that was removed meanwhile keeps nobody out.
func TestRemovedFileDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file := lock(t, path)
	defer file.Close()
	if !isAt(file, path) {
		t.Error("the locked file is said not to be at its path")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if isAt(file, path) {
		t.Error("the removed file is said to be at its path")
	}
	if err := lock(t, path).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMissingDirectory(t *testing.T) {
	if _, err := Lock(t.Context(), filepath.Join(t.TempDir(), "missing", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}
