package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// onDisk makes a fault of an event in the shared directory. Only one happens at a time.
func onDisk(happens throw) throw {
	return func(h *harness, r *rand.Rand) bool {
		if !h.active.disk.TryLock() {
			return false
		}
		defer h.active.disk.Unlock()
		return happens(h, r)
	}
}

// takeAway renames the directory away for a while. In the meantime, a dangling link is in
// its place, so that nobody, not even root, can make another.
func takeAway(h *harness, r *rand.Rand) bool {
	away := h.locks + ".away"
	if os.Symlink("nowhere", away) != nil {
		return false
	}
	defer func() { _ = os.Remove(away) }()
	defer h.timeline.begin("away", 0)()
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

// moveLink moves the link at the path of the lock directory to the other directory, once
// every process knows the current one. The other directory still has everything that was
// left there, also by processes that were killed.
func moveLink(h *harness, _ *rand.Rand) bool {
	if !h.waitUntilKnown() {
		return false
	}
	defer h.timeline.begin("links", 0)()
	defer h.oracle.moment(&h.oracle.replaced)()
	return exchange(h.locks, h.other()) == nil
}

// replaceDirectory replaces the directory by a new one, once every process knows the
// current one.
func replaceDirectory(h *harness, r *rand.Rand) bool {
	if !h.waitUntilKnown() {
		return false
	}
	defer h.timeline.begin("replace", 0)()
	old := fmt.Sprintf("%s.%d", h.locks, now())
	if h.shares() || r.IntN(2) == 0 { // the other users could not use a directory made by one of them
		return h.replaceAtOnce(old)
	}
	end := h.oracle.moment(&h.oracle.replaced)
	err := os.Rename(h.locks, old)
	end()
	if err != nil {
		return false
	}
	if r.IntN(2) == 0 {
		time.Sleep(milliseconds(r, 1, 200)) // a process may make it in the meantime
	}
	if err := h.makeLocks(h.locks); err != nil {
		h.problem("%v", err)
	}
	return true
}

// replaceAtOnce replaces the directory without a moment in which there is none.
func (h *harness) replaceAtOnce(old string) bool {
	if err := h.makeLocks(old); err != nil {
		h.problem("%v", err)
		return false
	}
	defer h.oracle.moment(&h.oracle.replaced)()
	return exchange(h.locks, old) == nil
}

// waitUntilKnown waits until every process has worked in the directory since it was last
// replaced.
func (h *harness) waitUntilKnown() bool {
	h.oracle.mu.Lock()
	var last int64
	if n := len(h.oracle.replaced); n > 0 {
		last = h.oracle.replaced[n-1].to
	}
	h.oracle.mu.Unlock()
	for i := 0; i < 500 && !h.ending.Load(); i++ {
		known := true
		for i := range h.slots {
			known = known && int64(h.get(control(i, ctlLastEntry))) > last
		}
		if known {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// spoilGuard damages the guard file, or removes it.
func spoilGuard(h *harness, r *rand.Rand) bool {
	if !h.waitUntilKnown() {
		return false
	}
	guard := filepath.Join(h.locks, ".orderly-guard")
	defer h.timeline.begin("guard", 0)()
	defer h.oracle.moment(&h.oracle.forgotten)()
	var err error
	switch r.IntN(3) {
	case 0:
		err = os.Remove(guard)
	case 1:
		err = os.Truncate(guard, 0)
	case 2:
		err = os.WriteFile(guard, []byte("nonsense, and more of it\n"), 0)
	}
	return err == nil
}

// removeFiles repeatedly removes the first lock files of some queues: those of holders,
// and sometimes of waiters.
func removeFiles(h *harness, r *rand.Rand) bool {
	defer h.timeline.begin("files", 0)()
	removed := 0
	for range 1 + r.IntN(20) {
		tickets := h.tickets()
		for _, q := range slices.Sorted(maps.Keys(tickets)) {
			if r.IntN(2) == 0 {
				continue
			}
			names := tickets[q]
			if r.IntN(4) > 0 {
				names = names[:1]
			}
			for _, name := range names[:min(len(names), 1+r.IntN(5))] {
				if os.Remove(filepath.Join(h.locks, name)) == nil {
					removed++
				}
			}
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
	return removed > 0
}

// tickets lists the existing lock files of each queue, in order.
func (h *harness) tickets() map[string][]string {
	names, err := filepath.Glob(filepath.Join(h.locks, "*"))
	if err != nil {
		return nil
	}
	tickets := make(map[string][]string)
	for _, path := range names {
		name := filepath.Base(path)
		if t, err := serializer.ParseTicket(name); err == nil {
			tickets[t.Prefix] = append(tickets[t.Prefix], name)
		}
	}
	return tickets
}

// removeOwnerFiles removes the names of the owner files. The processes that work in the
// directory restore them. A process that arrives at that very moment may not know of the
// tickets, so removing both kinds of files at once is left out.
func removeOwnerFiles(h *harness, _ *rand.Rand) bool {
	names, err := filepath.Glob(filepath.Join(h.locks, ".orderly-owner-*"))
	if err != nil {
		return false
	}
	defer h.timeline.begin("owners", 0)()
	removed := 0
	for _, path := range names {
		if os.Remove(path) == nil {
			removed++
		}
	}
	return removed > 0
}

func takePermissions(h *harness, r *rand.Rand) bool {
	defer h.timeline.begin("permissions", 0)()
	if os.Chmod(h.locks, 0) != nil {
		return false
	}
	time.Sleep(milliseconds(r, 1, 300))
	return os.Chmod(h.locks, h.mode()) == nil
}

func useInodes(h *harness, r *rand.Rand) bool {
	return h.fill(r, "inodes", func(dir string) error {
		for i := 0; ; i++ {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				return err
			}
			f.Close()
		}
	})
}

func useBytes(h *harness, r *rand.Rand) bool {
	return h.fill(r, "bytes", func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			return err
		}
		defer f.Close()
		for {
			if _, err := f.Write(make([]byte, 4096)); err != nil {
				return err
			}
		}
	})
}

// fill exhausts a resource for a while.
func (h *harness) fill(r *rand.Rand, fault string, use func(dir string) error) bool {
	if !inOwnNamespace() {
		return false // it would exhaust the machine's
	}
	dir := filepath.Join(h.base, "filler")
	if os.Mkdir(dir, 0o700) != nil {
		return false
	}
	defer os.RemoveAll(dir)
	defer h.timeline.begin(fault, 0)()
	for range r.IntN(4) + 1 {
		_ = use(dir) // again, because some may have been freed in the meantime
		time.Sleep(milliseconds(r, 1, 100))
	}
	return true
}
