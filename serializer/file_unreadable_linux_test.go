package serializer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Bug: an owner file that root had left in a service's directory, and which the service
// could not open, kept all its requests from entering once the directory was replaced.
func TestRootsOwnerFileInReplacedDirectory(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(dirOf(t, 0, 0o755), "locks")
	makeDir := func() {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, alice, alice)); err != nil {
			t.Fatal(err)
		}
	}
	makeDir()
	if err := os.Chmod(plant(t, 0, "", dir, leftoverOwner), 0o600); err != nil {
		t.Fatal(err)
	}
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Again: true}.start(t)
	p.says(t, "open")
	p.says(t, "inside")
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	makeDir()
	if _, err := fmt.Fprintln(p.stdin); err != nil {
		t.Fatal(err)
	}
	p.says(t, "inside again")
	p.leave(t)
}
