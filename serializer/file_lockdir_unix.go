//go:build unix && !aix && !solaris

package serializer

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// osDir is a real directory.
type osDir struct {
	path      string
	guardPath string
	clock     func() time.Time

	dir   int // the directory, open
	where fileID
	guard int // the guard file, open
	id    fileID
	notes *notifier // nil if the system does not report which files changed
	polls poller    // used if notes is nil

	boot string // identifies the current boot of the machine
	disk guardOnDisk

	guardNumber int // index of the guard's name in guardNames

	everybody bool // the directory is world-writable: only our files count
	fileMode  atomic.Uint32
	uid       uint32        // of the directory
	gid       atomic.Uint32 // of the directory
	gives     bool          // files made by this process are given to the directory's owner

	mu         sync.Mutex
	owners     map[ownerKind]*ownerFile
	used       []*ownerFile // full or removed files to which tickets are still linked
	ids        map[fileID]bool
	tickets    map[string]*ownerFile // if there are no hard links
	ledgerFile *ownerFile            // the owner file with the ledger for tickets of all kinds

	striking sync.Mutex
	ledgers  []*ownLedger // of ledgerFile and its predecessors

	noLinks atomic.Bool // there are no hard links: each ticket is a locked file
}

// openLockDir opens an existing directory and its guard.
func openLockDir(path string, clock func() time.Time) (lockDir, error) {
	d := &osDir{path: path, guardPath: filepath.Join(path, guardFile), clock: clock, guard: -1, boot: bootID(),
		disk:   guardOnDisk{flush: syncData},
		owners: make(map[ownerKind]*ownerFile), ids: make(map[fileID]bool), tickets: make(map[string]*ownerFile)}
	var err error
	if d.dir, err = openRetry(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &StorageError{"opening lock directory", path, err}
	}
	if err := d.openGuard(); err != nil {
		d.close()
		return nil, err
	}
	if d.notes = newNotifier(d.dir, path); d.notes == nil {
		d.polls.signal = newChangeSignal(d.dir)
	}
	return d, nil
}

func openRetry(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (d *osDir) openat(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(d.dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// ourUser reports whether the files of a user count in a directory that everybody may
// write to. Root's files do not count for other users: they cannot find out whether a
// process of root is alive.
func ourUser(uid uint32) bool { return int(uid) == os.Geteuid() }

func (d *osDir) here() bool {
	var st unix.Stat_t
	return unix.Stat(d.path, &st) == nil && fileID{uint64(st.Dev), st.Ino} == d.where
}

func (d *osDir) place() fileID { return d.where }

func (d *osDir) close() {
	d.disown()
	if d.notes != nil {
		d.notes.close()
	}
	d.polls.close()
	if d.guard >= 0 {
		_ = unix.Close(d.guard)
	}
	_ = unix.Close(d.dir)
}

// tryLockDir makes a directory if it is missing. It checks whether the engine can work
// there, without waiting for other processes.
func tryLockDir(path string) error {
	if err := makeDir(path); err != nil {
		return &StorageError{"making lock directory", path, err}
	}
	if kind := networkFileSystem(path); kind != "" {
		return &StorageError{"using lock directory", path, fmt.Errorf(
			"it is on a network file system (%s), where locks or notifications do not reach other machines; "+
				"use a local directory, or the etcd engine for several machines", kind)}
	}
	opened, err := openLockDir(path, time.Now)
	if err != nil {
		return err
	}
	d := opened.(*osDir)
	defer d.close()
	name := trialFiles + strconv.Itoa(os.Getpid()) + "-" + randomName()
	o, err := d.newOwnerFile(name, ownerKind{}, true)
	if err != nil {
		return &StorageError{"trying out a lock file", filepath.Join(path, name), err}
	}
	defer o.close()
	if err := d.remove(name); err != nil {
		return err
	}
	return nil
}
