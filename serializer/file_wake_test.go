package serializer

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// resting returns the turn of one engine and an arrival of another that waits for it, once
// the monitor rests until it is woken.
func resting(t *testing.T, holder, next *File) (Turn, <-chan result) {
	t.Helper()
	enter(t, next, arrival("a_")).Leave() // so that the holder knows its owner file
	turn := enter(t, holder, arrival("a_"))
	waiting := started(next, arrival("a_"))
	waitUntil(t, "the monitor rests", func() bool {
		d := next.current()
		if d == nil {
			return false
		}
		defer d.release()
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.resting
	})
	return turn, waiting
}

// Between any two steps of a leave, its process may be killed or stopped. A leave has
// three: it strikes the ticket out, wakes the next one, and removes the file. Once the
// ticket is struck out, the next one gets in, woken or not. The file is not left behind.
func TestHaltWhileLeaving(t *testing.T) {
	for step := 1; step <= 3; step++ {
		for name, mode := range map[string]haltMode{"killed": killed, "stopped": stopped} {
			t.Run(fmt.Sprintf("%s before step %d", name, step), func(t *testing.T) {
				t.Parallel()
				dir := newSimDir()
				victim := dir.newProc()
				holder, next := dir.engine(victim), dir.engine(dir.newProc())
				holder.SlowTicks() // its calls are those of the leave only
				turn, waiting := resting(t, holder, next)

				calls := 0
				dir.mu.Lock()
				victim.halt = func(int) haltMode {
					if calls++; calls == step {
						return mode
					}
					return running
				}
				dir.mu.Unlock()
				left := make(chan struct{})
				go func() {
					turn.Leave()
					close(left)
				}()
				if mode == stopped && step == 1 {
					stillWaits(t, waiting, "behind a ticket that stands")
					victim.wake()
				}
				get(t, waiting).Leave()
				victim.wake()
				close(dir.ended)
				<-left
				waitUntil(t, "no ticket is left", func() bool { return !dir.hasTickets() })
				_ = holder.Close()
				_ = next.Close()
			})
		}
	}
}

// hasTickets reports whether there is the file of a ticket.
func (s *simDir) hasTickets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.files {
		if _, err := ParseTicket(name); err == nil {
			return true
		}
	}
	return false
}

// A file of another program may have the number of a ticket that is over. It is waited for
// all the same: what an owner says of its ticket says nothing of that file.
func TestUnownedFileWithTheNumberOfATicket(t *testing.T) {
	dir := t.TempDir()
	other, e := openAt(t, dir, 0), openAt(t, dir, 0)
	enter(t, e, arrival("a_")).Leave() // so that the other knows our owner file
	turn := enter(t, other, arrival("a_"))
	over := Ticket{Prefix: "a_", Stamp: turn.Token(), Client: arrival("a_").Client}
	over.Client = netip.AddrPortFrom(over.Client.Addr(), over.Client.Port()+1)
	turn.Leave()

	touch(t, dir, over.Name())
	waiting := started(e, arrival("a_"))
	stillWaits(t, waiting, "behind a file of another program")
	if err := os.Remove(filepath.Join(dir, over.Name())); err != nil {
		t.Fatal(err)
	}
	get(t, waiting).Leave()
}

// Bug: after somebody had put a smaller number into the guard file, a number was issued
// twice. The ledger of the process that had it first said that it was over, so the ticket
// of the second was passed while its request was inside.
func TestNumberIssuedTwice(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	open := func() *File {
		e, err := OpenFile(dir, FileOptions{Clock: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	first, second, e := open(), open(), open()
	before := enter(t, e, arrival("a_"))
	before.Leave()
	over := enter(t, first, arrival("a_"))
	over.Leave()
	number := fmt.Appendf(nil, "%020d\n", before.Token())
	guard, err := os.OpenFile(filepath.Join(dir, guardFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	if _, err := guard.WriteAt(number, 0); err != nil {
		t.Fatal(err)
	}
	again := enter(t, second, arrival("a_"))
	if again.Token() != over.Token() {
		t.Fatalf("the second has %d, expected %d", again.Token(), over.Token())
	}
	waiting := started(e, arrival("a_"))
	stillWaits(t, waiting, "behind a number that another process had before")
	again.Leave()
	get(t, waiting).Leave()
}
