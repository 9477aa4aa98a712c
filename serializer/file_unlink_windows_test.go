package serializer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

// Bug: without POSIX semantics of deletion, a finished ticket kept its name as long as a
// waiter had it open, to see whether its owner lived. So the waiter saw it in the
// directory until the next tick, and without ticks for ever.
func TestNameGoesThoughFileIsOpen(t *testing.T) {
	dir := t.TempDir()
	opened, err := openLockDir(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*osDir)
	defer d.close()
	touch(t, dir, "a_")
	h, err := d.open("a_", windows.GENERIC_READ, windows.OPEN_EXISTING)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.remove("a_"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a_")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking for a removed file: %v", err)
	}
	_ = windows.CloseHandle(h)
	if files := filesOf(t, dir); len(files) != 1 {
		t.Errorf("files besides the guard: %q", files)
	}
}

func TestDirectoryInPlaceOfTicket(t *testing.T) {
	dir := t.TempDir()
	opened, err := openLockDir(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	if err := os.Mkdir(filepath.Join(dir, "a_"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := opened.remove("a_"); !errors.Is(err, errNotFile) {
		t.Errorf("removing a directory: %v", err)
	}
}

// Bug: the identity of a removed ticket was read from its file, which was not always
// possible. It stayed among ours. If another process's file later got the same identity,
// it counted as unowned, and a writer entered beside its reader.
func TestIdentityOfRemovedTicket(t *testing.T) {
	opened, err := openLockDir(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*osDir)
	defer d.close()
	for _, name := range []string{"a_", "b_"} {
		if err := d.create(name, 0, ownerKind{}); err != nil {
			t.Fatal(err)
		}
		id, err := d.identify(name)
		if err != nil || !d.owns(id) {
			t.Fatalf("our own file: %v", err)
		}
		if err := d.remove(name); err != nil {
			t.Fatal(err)
		}
		if d.owns(id) {
			t.Errorf("%s is removed, and its identity still counts as ours", name)
		}
	}
}
