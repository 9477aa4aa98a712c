package body

import (
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// If no more of a body can be stored, the request is refused with 503.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	t.Setenv("TMPDIR", dir)
	r := newRequest(strings.Repeat("x", 200_000), -1)
	_, err := Read(httptest.NewRecorder(), r, Limits{10, 1 << 20})
	if statusOf(err) != 503 || !errors.Is(err, ErrFile) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the disk is full: %v", err)
	}
	b, err := Read(httptest.NewRecorder(), newRequest(strings.Repeat("x", 20_000), -1), Limits{10, 1 << 20})
	if err != nil {
		t.Errorf("nothing was freed: %v", err)
	}
	b.Free()
	t.Setenv("TMPDIR", dir+"/missing")
	_, err = Read(httptest.NewRecorder(), newRequest("more than ten bytes", -1), Limits{10, 1 << 20})
	if statusOf(err) != 503 || !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), dir) {
		t.Errorf("there is no directory: %v", err)
	}
}
