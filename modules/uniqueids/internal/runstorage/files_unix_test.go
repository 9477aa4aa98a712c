//go:build unix

package runstorage

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/caddyserver/certmagic"
)

// Bug: when root took a run, all files that it made belonged to root, and the
// user of the service got no more runs.
func TestWhatRootMakesIsTheOwners(t *testing.T) {
	owner := os.Geteuid()
	dir := t.TempDir()
	if owner == 0 {
		owner = 12345
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := Next(t.Context(), &certmagic.FileStorage{Path: filepath.Join(dir, "a", "b")}); err != nil {
			t.Fatal(err)
		}
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != owner {
			t.Errorf("%s belongs to %d; expected %d", path, uid, owner)
		}
		files++
		return nil
	})
	if err != nil || files < 7 {
		t.Errorf("found %d files, %v", files, err)
	}
}
