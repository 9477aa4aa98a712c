//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownLedger is the ledger of a local owner file.
type ownLedger struct {
	fd int

	mu  sync.Mutex // guards the rest
	mem []byte
	ledger
}

// newLedger makes a ledger in an owner file. It first writes to the file, so that a full
// disk is an error here. Later, a write to mapped memory could not report it.
func newLedger(fd int) (*ownLedger, error) {
	l := &ownLedger{fd: fd}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.resizeLocked(ledgerSize); err != nil {
		return nil, fmt.Errorf("making its ledger: %w", err)
	}
	l.set(markWord, ledgerMark)
	return l, nil
}

// resizeLocked enlarges the ledger to a size in bytes.
func (l *ownLedger) resizeLocked(size int) error {
	old := max(len(l.mem)-ledgerOffset, 0)
	if _, err := unix.Pwrite(l.fd, make([]byte, size-old), int64(ledgerOffset+old)); err != nil {
		return err
	}
	mem, err := mapFile(l.fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	l.unmapLocked()
	l.mem, l.ledger = mem, ledgerIn(mem)
	return nil
}

func mapFile(fd, size, access int) ([]byte, error) {
	return unix.Mmap(fd, 0, ledgerOffset+size, access, unix.MAP_SHARED)
}

func ledgerIn(mem []byte) ledger {
	list := mem[ledgerOffset:]
	return ledger{unsafe.Slice((*uint64)(unsafe.Pointer(&list[0])), len(list)/8)}
}

func (l *ownLedger) unmapLocked() {
	if l.mem != nil {
		_ = unix.Munmap(l.mem)
		l.mem, l.ledger = nil, ledger{}
	}
}

// add appends a number that is greater than all before it.
func (l *ownLedger) add(stamp uint64) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem == nil {
		return errLedgerGone
	}
	if fault := sheltered(func() { err = l.addOrGrowLocked(stamp) }); fault != nil {
		return fault
	}
	return err
}

func (l *ownLedger) addOrGrowLocked(stamp uint64) error {
	err := l.ledger.add(stamp)
	if err != errLedgerFull {
		return err
	}
	if !l.compact() {
		if err := l.resizeLocked(2 * (len(l.mem) - ledgerOffset)); err != nil {
			return fmt.Errorf("making room in the ledger: %w", err)
		}
	}
	return l.ledger.add(stamp)
}

// merge adds numbers in any order.
func (l *ownLedger) merge(stamps []uint64) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem == nil {
		return errLedgerGone
	}
	fault := sheltered(func() {
		all := append(l.ledger.outstanding(), stamps...)
		slices.Sort(all)
		all = slices.Compact(all)
		for len(all) >= l.room() && err == nil {
			err = l.resizeLocked(2 * (len(l.mem) - ledgerOffset))
		}
		if err == nil {
			l.replace(all)
		}
	})
	return errors.Join(err, fault)
}

// strike strikes out a number, if it is in the list. In a damaged ledger, there is
// nothing left to strike out.
func (l *ownLedger) strike(stamp uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem != nil {
		_ = sheltered(func() { l.ledger.strike(stamp) })
	}
}

// outstanding lists the numbers that stand.
func (l *ownLedger) outstanding() (stamps []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem != nil {
		_ = sheltered(func() { stamps = l.ledger.outstanding() })
	}
	return stamps
}

// close unmaps the file: while it is mapped, it stays locked.
func (l *ownLedger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmapLocked()
}

// otherLedger is the ledger of another process's owner file. It is not safe for
// concurrent use.
type otherLedger struct {
	fd  int
	mem []byte
	ledger
}

// openLedger maps the ledger of an owner file. It returns nil if there is none.
func openLedger(fd int) *otherLedger {
	l := &otherLedger{fd: fd}
	if !l.remap() {
		return nil
	}
	return l
}

// remap maps the ledger at its current size.
func (l *otherLedger) remap() bool {
	var st unix.Stat_t
	if err := unix.Fstat(l.fd, &st); err != nil || st.Size < ledgerOffset+ledgerSize {
		return false
	}
	mem, err := mapFile(l.fd, int(st.Size)-ledgerOffset, unix.PROT_READ)
	if err != nil {
		return false
	}
	l.close()
	l.mem, l.ledger = mem, ledgerIn(mem)
	return true
}

// read calls fn with a consistent list. It reports false if that is not possible at the
// moment. A damaged ledger is empty: it cannot say of any ticket that it is out.
func (l *otherLedger) read(fn func(n int)) (ok bool) {
	fault := sheltered(func() {
		if !l.valid() {
			fn(0)
			ok = true
			return
		}
		var more bool
		if ok, more = l.ledger.read(fn); more && l.remap() {
			ok, _ = l.ledger.read(fn)
		}
	})
	if fault != nil {
		fn(0)
		return true
	}
	return ok
}

// standing returns what the ledger says about a ticket.
func (l *otherLedger) standing(stamp uint64) (s standing) {
	ok := l.read(func(n int) {
		i, found := l.find(n, stamp)
		switch {
		case !found:
			s = isAbsent
		case l.get(firstWord+i)&struckOut != 0:
			s = isOver
		default:
			s = isOut
		}
	})
	if !ok {
		return isUnclear
	}
	return s
}

// outstanding lists the tickets of the owner that are out. ok is false if that cannot be
// read consistently at the moment.
func (l *otherLedger) outstanding() (stamps []uint64, ok bool) {
	ok = l.read(func(n int) {
		stamps = stamps[:0]
		for i := range n {
			if stamp := l.get(firstWord + i); stamp&struckOut == 0 {
				stamps = append(stamps, stamp)
			}
		}
	})
	return stamps, ok
}

func (l *otherLedger) close() {
	if l.mem != nil {
		_ = unix.Munmap(l.mem)
		l.mem, l.ledger = nil, ledger{}
	}
}
