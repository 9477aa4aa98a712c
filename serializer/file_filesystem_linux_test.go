package serializer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// File systems limit the number of links to a file. At the limit, another owner file
// is made.
func TestLinkLimit(t *testing.T) {
	dir := t.TempDir()
	var d *osDir
	e := openAt(t, dir, 0)
	e.open = openInto(&d)
	first := enter(t, e, arrival("a_"))
	full := d.owners[ownerKind{}]
	if err := fillLinks(dir, full.name); err != unix.EMLINK {
		t.Skipf("no limit of links below 70,000 here (%v); with TMPDIR on ext4 there is one", err)
	}
	next := join(t, e, arrival("a_"))
	other := openAt(t, dir, 0)
	third := started(other, arrival("a_"))
	stillWaits(t, third, "the first is inside")
	first.Leave()
	second := get(t, next)
	if d.owners[ownerKind{}] == full {
		t.Error("the full owner file is still used")
	}
	stillWaits(t, third, "the second is inside")
	second.Leave()
	get(t, third).Leave()
}

func openInto(d **osDir) func(string, func() time.Time) (lockDir, error) {
	return func(path string, clock func() time.Time) (lockDir, error) {
		opened, err := openLockDir(path, clock)
		if err == nil {
			*d = opened.(*osDir)
		}
		return opened, err
	}
}

// fillLinks links to a file until that fails.
func fillLinks(dir, name string) error {
	more := filepath.Join(dir, "links")
	if err := os.Mkdir(more, 0o700); err != nil {
		return err
	}
	fd, err := unix.Open(more, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	from, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	for i := range 70_000 {
		if err := unix.Linkat(from, name, fd, tokenText(uint64(i)), 0); err != nil {
			return err
		}
	}
	return nil
}

// If the system refuses links, each ticket becomes a separate file. An append-only owner
// file is refused in the same way as on a file system without links.
func TestLinksRefused(t *testing.T) {
	dir := t.TempDir()
	var d *osDir
	e := openAt(t, dir, 0)
	e.open = openInto(&d)
	enter(t, e, arrival("a_")).Leave()
	owner := filepath.Join(dir, d.owners[ownerKind{}].name)
	if err := setAppendOnly(owner, true); err != nil {
		t.Skipf("making a file append-only needs root and ext4, btrfs, xfs or tmpfs: %v", err)
	}
	defer setAppendOnly(owner, false)

	first := enter(t, e, arrival("a_"))
	if !d.noLinks.Load() {
		t.Error("the engine did not notice that links are refused")
	}
	other := openAt(t, dir, 0)
	next := started(other, arrival("a_"))
	stillWaits(t, next, "the first is inside")
	first.Leave()
	second := get(t, next)
	third := started(e, arrival("a_"))
	stillWaits(t, third, "the second is inside")
	second.Leave()
	get(t, third).Leave()
}

func setAppendOnly(path string, on bool) error {
	const appendOnly = 0x20
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= appendOnly
	if on {
		flags |= appendOnly
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags)
}

// Network file systems are refused when the engine is opened, and the message
// says what to use instead.
func TestNetworkFileSystemRefused(t *testing.T) {
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	here := int64(uint32(st.Type))
	networkFileSystems[here] = "NFS"
	defer delete(networkFileSystems, here)
	_, err := OpenFile(dir, FileOptions{})
	if !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "NFS") || !strings.Contains(err.Error(), "etcd") || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if n := len(filesOf(t, dir)); n != 0 {
		t.Errorf("%d files were made", n)
	}
}

// If file descriptors run out, requests are refused, and none enters beside another. When
// there are some again, everything works as before.
func TestFileDescriptorsShort(t *testing.T) {
	dir := t.TempDir()
	one, two := openAt(t, dir, 0), openAt(t, dir, 0)
	holder := enter(t, one, arrival("a_"))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	short := limit
	short.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &short); err != nil {
		t.Fatal(err)
	}
	_, err := two.Enter(context.Background(), arrival("a_"))
	if err2 := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err2 != nil {
		t.Fatal(err2)
	}
	wantRefusal(t, err, ReasonStorage, unix.EMFILE)
	next := started(two, arrival("a_"))
	stillWaits(t, next, "the first is inside")
	holder.Leave()
	get(t, next).Leave()
}
