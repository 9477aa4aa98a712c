package storedruns

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
)

// Bug: in a storage without a root, which is the working directory, the way up
// to the root never ended, and the lock was kept.
func TestFilesWithoutRoot(t *testing.T) {
	for _, root := range []string{"", ".", "./", "below", "below/", "./below/../other"} {
		t.Run(root, func(t *testing.T) {
			t.Chdir(t.TempDir())
			storage := &certmagic.FileStorage{Path: root}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for want := range uint32(3) {
				if run, err := Next(ctx, storage); err != nil || run != want {
					t.Fatalf("took run %d, %v; expected %d", run, err, want)
				}
			}
		})
	}
}

// Bug: when only the number was deleted, the runs started again from 0.
func TestNumberHasGone(t *testing.T) {
	storage := &certmagic.FileStorage{Path: t.TempDir()}
	if _, err := Next(t.Context(), storage); err != nil {
		t.Fatal(err)
	}
	file := storage.Filename(nextKey)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run, err := Next(t.Context(), storage)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "it has gone") {
			t.Fatalf("took run %d, %v", run, err)
		}
	}
	// The way out that the error names.
	if err := os.WriteFile(file, []byte("100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if run, err := Next(t.Context(), storage); err != nil || run != 100 {
		t.Errorf("took run %d, %v; expected 100", run, err)
	}
}

// The lock file of an older version is empty: that version wrote no mark into
// it.
func TestEmptyLockFileOfOlderVersion(t *testing.T) {
	storage := &certmagic.FileStorage{Path: t.TempDir()}
	file := storage.Filename(nextKey)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: "8", file + ".lock": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if run, err := Next(t.Context(), storage); err != nil || run != 8 {
		t.Errorf("took run %d, %v; expected 8", run, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := Next(t.Context(), storage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the number was deleted: %v", err)
	}
}
