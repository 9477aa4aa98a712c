//go:build unix

package durable_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/durable"
)

// A directory that root makes belongs to the owner of the one that it is made in. Those of
// other users are theirs.
func TestOwners(t *testing.T) {
	dir, owner := t.TempDir(), os.Geteuid()
	if owner == 0 {
		owner = 12345
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	made := []string{filepath.Join(dir, "a"), filepath.Join(dir, "a", "b")}
	if err := durable.MakeDirs(made[1], 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range made {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != owner {
			t.Errorf("%s belongs to %d; expected %d", path, uid, owner)
		}
	}
}
