package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// takeAway renames the directory away for a while. In the meantime, a dangling link is in
// its place, so that nobody, not even root, can make another.
func takeAway(h *harness, r *rand.Rand) bool {
	away := h.locks + ".away"
	_ = os.Symlink("nowhere", away) // the first time
	if exchange(h.locks, away) != nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 400))
	if err := exchange(h.locks, away); err != nil {
		h.problem("putting the directory back: %v", err)
	}
	return true
}

// exchange exchanges the names of two files atomically.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// replaceDirectory replaces the directory by another one, once every process knows the
// current one. The other one is new, or the one before, with all that was left in it.
func replaceDirectory(h *harness, r *rand.Rand) bool {
	if !h.waitUntilKnown(0) {
		return false
	}
	other, how := h.locks+".other", r.IntN(4)
	if how > 0 {
		_ = os.RemoveAll(other)
	}
	switch how {
	case 1: // there is none for a while
		end := h.begin(directoryReplaced)
		err := os.Rename(h.locks, other)
		end()
		time.Sleep(milliseconds(r, 0, 200)) // a process may make it in the meantime
		return makeDir(h.locks) == nil && err == nil
	case 2: // with all files: a stopped process could not know of one that has started meanwhile
		for _, s := range h.slots {
			s.Lock()
			defer s.Unlock()
		}
		return h.waitUntilKnown(now()) && h.replaceBy(other) && os.RemoveAll(other) == nil
	}
	return h.replaceBy(other)
}

// replaceBy exchanges the directory with another one, without a moment in which there is
// none.
func (h *harness) replaceBy(other string) bool {
	if makeDir(other) != nil {
		return false
	}
	defer h.begin(directoryReplaced)()
	return exchange(h.locks, other) == nil
}

// waitUntilKnown waits until every process has worked in the directory since a moment, and since
// it was last replaced.
func (h *harness) waitUntilKnown(last int64) bool {
	h.tell(func() {
		for _, s := range h.spans {
			if s.fault == directoryReplaced {
				last = max(last, s.to)
			}
		}
	})
	for start := now(); since(start) < graceTime && !h.ending.Load(); time.Sleep(10 * time.Millisecond) {
		if h.haveEntered(last) {
			return true
		}
	}
	return false
}

func takePermissions(h *harness, r *rand.Rand) bool {
	if os.Chmod(h.locks, 0) != nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 300))
	return os.Chmod(h.locks, 0o750) == nil
}

// smallSize is the size of the small file system in bytes. An owner file takes a megabyte of it.
const smallSize = 32 << 20

// mountSmall mounts a file system with little more room than the tickets need. It reports
// whether that succeeded, for which it must be root.
func mountSmall(dir string, tickets int) bool {
	options := fmt.Sprintf("nr_inodes=%d,size=%d,mode=755", 2*tickets+500, smallSize)
	return unix.Mount("torture", dir, "tmpfs", 0, options) == nil
}

// fillDisk leaves no inodes, or at most two pages, for a while.
func fillDisk(h *harness, r *rand.Rand) bool {
	dir := filepath.Join(h.base, "filler")
	if !h.small || os.Mkdir(dir, 0o700) != nil { // otherwise, it would fill the machine's
		return false
	}
	defer os.RemoveAll(dir)
	bytes := r.IntN(2) == 0
	for i := range r.IntN(4) + 1 { // again, because some may have been freed in the meantime
		for n := 0; !bytes && os.Mkdir(filepath.Join(dir, fmt.Sprint(i, n)), 0o700) == nil; n++ {
		}
		if bytes {
			useBytes(filepath.Join(dir, strconv.Itoa(i)), r.Int64N(3))
		}
		time.Sleep(milliseconds(r, 1, 100))
	}
	return true
}

// useBytes fills the small file system, apart from some pages.
func useBytes(path string, pages int64) {
	_ = os.WriteFile(path, make([]byte, smallSize), 0o600)
	if info, err := os.Stat(path); err == nil {
		_ = os.Truncate(path, max(info.Size()-pages*int64(os.Getpagesize()), 0))
	}
}

// Names of files that are no tickets.
const (
	guardName  = ".orderly-guard"
	ownerFiles = ".orderly-owner-*"
	drafts     = ".orderly-new-" // of owner files and guards, that are being made
)

// removeFiles removes lock files of waiters and holders, again and again.
func removeFiles(h *harness, r *rand.Rand) (removed bool) {
	for range 1 + r.IntN(20) {
		removed = h.spoil(r, "*", 8, func(path string) error {
			if _, err := lockfile.ParseName(filepath.Base(path)); err != nil {
				return err
			}
			return os.Remove(path)
		}) || removed
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
	return removed
}

// spoil does something to one in so many of the lock directory's files whose names match a pattern. It
// reports whether that succeeded with any.
func (h *harness) spoil(r *rand.Rand, pattern string, oneIn int, do func(path string) error) (done bool) {
	for _, path := range h.files(pattern) {
		done = r.IntN(oneIn) == 0 && do(path) == nil || done
	}
	return done
}

// files lists the files of the lock directory whose names match a pattern.
func (h *harness) files(pattern string) []string {
	paths, _ := filepath.Glob(filepath.Join(h.locks, pattern)) // the pattern is not malformed
	return paths
}

// removeOwnerFiles removes the names of the owner files. The processes restore them. A
// process that arrives at that very moment could not know of a ticket whose file was
// removed, too. So this fault and "files" exclude each other for a while.
func removeOwnerFiles(h *harness, r *rand.Rand) bool {
	defer time.Sleep(settleTime)
	return h.spoil(r, ownerFiles, 1, os.Remove)
}
