//go:build unix

package durable_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/durable"
)

// The owner of the directory may put a link in the place of the temporary file.
// What it points to stays as it is.
func TestReplaceFileFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "number"), filepath.Join(t.TempDir(), "precious")
	write(t, other, "precious")
	if err := os.Symlink(other, path+".tmp"); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceFile(path, "text"); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "text", "number")
	wantFile(t, other, "precious", "precious")
	wantPrivate(t, path, 0)
}

// A file that root makes belongs to the owner of the file that it replaces, or
// else of the directory. Files that other users make are theirs.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	ofDir, ofFile := os.Geteuid(), os.Geteuid()
	made, replaced := filepath.Join(dir, "a", "b", "made"), filepath.Join(dir, "replaced")
	write(t, replaced, "before")
	if os.Geteuid() == 0 {
		ofDir, ofFile = 12345, 12346
		for path, owner := range map[string]int{dir: ofDir, replaced: ofFile} {
			if err := os.Chown(path, owner, owner); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := durable.MakeDirs(filepath.Dir(made), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{made, replaced} {
		if err := durable.ReplaceFile(path, "text"); err != nil {
			t.Fatal(err)
		}
	}
	for path, owner := range map[string]int{
		filepath.Join(dir, "a"): ofDir, filepath.Join(dir, "a", "b"): ofDir, made: ofDir, replaced: ofFile,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != owner {
			t.Errorf("%s belongs to %d; expected %d", path, uid, owner)
		}
	}
}
