package serializer

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wakers are two processes in one directory: the first has tickets, the second asks for
// them. Each knows the other's owner file.
func wakers(t *testing.T, stamps ...uint64) (owner, asker *osDir) {
	t.Helper()
	dir := t.TempDir()
	owner, asker = openOS(t, dir), openOS(t, dir)
	create(t, asker, minStamp)
	for _, stamp := range stamps {
		create(t, owner, stamp)
	}
	for of, by := range map[*osDir]*osDir{owner: asker, asker: owner} {
		probe, err := by.probe(of.ledgerFile.name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(probe.close)
		if !probe.keepsLedger() || !probe.wakes() {
			t.Fatal("the owner does not wake others")
		}
	}
	return owner, asker
}

func create(t *testing.T, d *osDir, stamp uint64) {
	t.Helper()
	if err := d.create(wakeTicket(stamp), stamp, ownerKind{}); err != nil {
		t.Fatal(err)
	}
}

func leave(t *testing.T, d *osDir, stamp uint64) {
	t.Helper()
	if err := d.leave(wakeTicket(stamp), stamp); err != nil {
		t.Fatal(err)
	}
}

func wakeTicket(stamp uint64) string {
	return Ticket{Prefix: "a_", Stamp: stamp, Client: arrival("a_").Client}.Name()
}

// isWoken reports whether a rest would end at once.
func isWoken(t *testing.T, d *osDir) (woken bool) {
	t.Helper()
	err := d.waker.conn.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		woken = n > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return woken
}

// Of all the tickets that come and go, only those wake a process that it asked for.
func TestOnlyWhoAskedIsWoken(t *testing.T) {
	owner, asker := wakers(t, minStamp+1, minStamp+2, minStamp+3)
	if !asker.askFor([]uint64{minStamp + 2}) {
		t.Fatal("nobody would wake us")
	}
	leave(t, owner, minStamp+1)
	create(t, owner, minStamp+4)
	if isWoken(t, asker) {
		t.Error("woken for a ticket that nobody asked for")
	}
	leave(t, owner, minStamp+2)
	if !isWoken(t, asker) {
		t.Fatal("not woken")
	}
	asker.rest(time.Hour)
	asker.askFor(nil)
	leave(t, owner, minStamp+3)
	if isWoken(t, asker) {
		t.Error("woken for what was taken back")
	}
}

// An owner that ends, a marker and another program's file end a rest, though nobody asked.
func TestWokenByFilesThatAreClosed(t *testing.T) {
	for name, happen := range map[string]func(owner *osDir) error{
		"an owner ends":            func(owner *osDir) error { owner.disown(); return nil },
		"a marker":                 func(owner *osDir) error { return owner.mark(evictMarker + "1") },
		"a pause":                  func(owner *osDir) error { return owner.mark(pauseName("a_", Resumed)) },
		"a file of mod_serializer": func(owner *osDir) error { return owner.mark(wakeTicket(minStamp + 9)) },
	} {
		t.Run(name, func(t *testing.T) {
			owner, asker := wakers(t, minStamp+1)
			if !asker.askFor([]uint64{minStamp + 1}) {
				t.Fatal("nobody would wake us")
			}
			if isWoken(t, asker) {
				t.Fatal("woken too early")
			}
			if err := happen(owner); err != nil {
				t.Fatal(err)
			}
			asker.rest(time.Hour)
		})
	}
}

// Nobody relies on being woken where the owner may not know whom to wake, or we would not
// hear it.
func TestNobodyWouldWake(t *testing.T) {
	for name, spoil := range map[string]func(owner, asker *osDir) (stamp uint64){
		"a ticket from before we came": func(_, _ *osDir) uint64 { return minStamp - 1 },
		"a ledger without a number of ours": func(_, asker *osDir) uint64 {
			asker.ledgerFile.ledger.since = 0
			return minStamp + 1
		},
		"a damaged owner file": func(_, asker *osDir) uint64 {
			_ = unix.Ftruncate(asker.ledgerFile.fd, 0)
			return minStamp + 1
		},
		"no inotify left": func(_, asker *osDir) uint64 {
			asker.waker.close()
			asker.waker = nil
			return minStamp + 1
		},
		"reads are not told": func(_, asker *osDir) uint64 {
			asker.waker.deaf = true
			return minStamp + 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			owner, asker := wakers(t, minStamp+1)
			if asker.askFor([]uint64{spoil(owner, asker)}) {
				t.Error("it counts on being woken")
			}
		})
	}
}

// A process whose owner file was removed by somebody makes another one, and is woken by
// that.
func TestWokenByTheNewOwnerFile(t *testing.T) {
	owner, asker := wakers(t, minStamp+1)
	if !asker.askFor([]uint64{minStamp + 1}) {
		t.Fatal("nobody would wake us")
	}
	old := asker.ledgerFile
	if err := asker.remove(old.name); err != nil {
		t.Fatal(err)
	}
	create(t, asker, minStamp+2)
	if asker.ledgerFile == old {
		t.Fatal("there is no new owner file")
	}
	if asker.askFor([]uint64{minStamp + 1}) {
		t.Error("it counts on an owner that may not know the new file")
	}
	create(t, asker, minStamp+3)
	create(t, owner, minStamp+4)
	probe, err := owner.probe(asker.ledgerFile.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(probe.close)
	probe.keepsLedger()
	if !asker.askFor([]uint64{minStamp + 4}) {
		t.Fatal("nobody would wake us")
	}
	leave(t, owner, minStamp+4)
	asker.rest(time.Hour)
}
