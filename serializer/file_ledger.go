package serializer

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// ledger is the part of an owner file that lists the numbers of the tickets that a
// process has out. Each number is written before its lock file is made, and struck out
// before the lock file is removed. So if a lock file disappears while its number stands,
// somebody else has removed it, and its ticket keeps its place.
//
// The owner and all processes that follow it map the ledger into memory, so neither
// writing nor reading it takes a system call. Its words are accessed only atomically. The
// highest bit of a number that is struck out is set:
//
//	0       ledgerMark
//	1       moves: odd while numbers are being moved within the list
//	2       count: how many words of the list are in use
//	8...    the list, in ascending order
//
// Numbers only grow, so a number is found by binary search. When the list is full, the
// owner compacts the numbers that stand.
type ledger struct {
	words []uint64
}

const (
	ledgerOffset = maxOwnerSize // in the owner file, in bytes: after the text
	ledgerSize   = 8 << 10      // of a new ledger, in bytes

	ledgerMark uint64 = 'o' | 'r'<<8 | 'd'<<16 | 'e'<<24 | 'r'<<32 | 'l'<<40 | 'y'<<48 | '1'<<56

	markWord  = 0
	movesWord = 1
	countWord = 2
	firstWord = 8

	struckOut uint64 = 1 << 63
)

// standing is what a ledger says about a ticket.
type standing uint8

const (
	isAbsent  standing = iota // the ticket belongs to another owner, or was over long ago
	isOver                    // the ticket is over
	isOut                     // the ticket is out
	isUnclear                 // the owner is rearranging its ledger
)

var (
	errLedgerFull = errors.New("the ledger is full")
	errLedgerGone = errors.New("somebody else damaged the owner file; a new one is made")
)

func (l ledger) get(word int) uint64    { return atomic.LoadUint64(&l.words[word]) }
func (l ledger) set(word int, n uint64) { atomic.StoreUint64(&l.words[word], n) }

// room is the capacity of the list.
func (l ledger) room() int { return len(l.words) - firstWord }

func (l ledger) valid() bool { return len(l.words) > firstWord && l.get(markWord) == ledgerMark }

// find returns the index of a number in a list of n, or where it would be inserted.
func (l ledger) find(n int, stamp uint64) (i int, found bool) {
	for end := n; i < end; {
		middle := int(uint(i+end) / 2)
		switch at := l.get(firstWord+middle) &^ struckOut; {
		case at == stamp:
			return middle, true
		case at < stamp:
			i = middle + 1
		default:
			end = middle
		}
	}
	return i, false
}

// add appends a number that is greater than all before it.
func (l ledger) add(stamp uint64) error {
	if !l.valid() {
		return errLedgerGone
	}
	n := int(l.get(countWord))
	if n >= l.room() {
		return errLedgerFull
	}
	l.set(firstWord+n, stamp)
	l.set(countWord, uint64(n+1))
	return nil
}

// strike strikes out a number, if it is in the list.
func (l ledger) strike(stamp uint64) {
	if !l.valid() {
		return
	}
	if i, found := l.find(min(int(l.get(countWord)), l.room()), stamp); found {
		l.set(firstWord+i, stamp|struckOut)
	}
}

// compact drops the numbers that are struck out. It reports false, and does nothing, if
// that would free less than half of the list.
func (l ledger) compact() bool {
	standing := l.outstanding()
	if len(standing) > l.room()/2 {
		return false
	}
	l.replace(standing)
	return true
}

// replace replaces the whole list.
func (l ledger) replace(stamps []uint64) {
	l.set(movesWord, l.get(movesWord)+1)
	for i, stamp := range stamps {
		l.set(firstWord+i, stamp)
	}
	l.set(countWord, uint64(len(stamps)))
	l.set(movesWord, l.get(movesWord)+1)
}

// outstanding lists the numbers that stand.
func (l ledger) outstanding() (stamps []uint64) {
	for i := range min(int(l.get(countWord)), l.room()) {
		if n := l.get(firstWord + i); n&struckOut == 0 {
			stamps = append(stamps, n)
		}
	}
	return stamps
}

// readTries is how often a reader tries again if the owner is moving numbers.
const readTries = 16

// read calls fn with the number of words in use, and again if the owner moved numbers in
// the meantime. ok is false if no call was undisturbed. more is true if the list is
// longer than the mapped part.
func (l ledger) read(fn func(n int)) (ok, more bool) {
	for range readTries {
		moves, n := l.get(movesWord), int(l.get(countWord))
		if n > l.room() {
			return false, true
		}
		if moves%2 == 0 {
			fn(n)
			if l.get(movesWord) == moves {
				return true, false
			}
		}
		runtime.Gosched()
	}
	return false, false
}

// sheltered accesses mapped memory. The memory is a file that others may truncate, so a
// fault becomes an error instead of ending the process.
func sheltered(do func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		if _, ok := fault.(interface{ Addr() uintptr }); !ok {
			panic(fault)
		}
		err = errLedgerGone
	}()
	do()
	return nil
}
