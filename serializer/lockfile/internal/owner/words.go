//go:build unix && !aix && !solaris

// Package owner keeps the owner files of a lock directory: what a process says there about
// itself and its tickets.
//
// A process has one owner file, which it keeps locked for as long as it works in the
// directory. Its tickets are hard links to the file. The file begins with text for people:
//
//	orderly lock-file owner 1
//	pid 4711 on web1
//	since 2026-11-20T08:15:30Z, program "/usr/bin/caddy"
//
// Then come two words of 64 bits for each ticket: one with its number and state, and one
// with its rule and a checksum of its file's name (see newWord and tag). The words are a
// hash table: those of a ticket lie in the first place that was free from the one on that
// follows from its number. So nothing ever moves.
//
// All processes map the file into memory, but only its owner writes. Read words.go, own.go
// and remote.go, in this order. What other programs may do to the file is in repair.go.
package owner

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
)

// word is half of what an owner file says about one ticket.
type word uint64

// State is where a ticket is, as its owner says.
type State uint8

// The states of a ticket. A word says Waiting before the ticket's file is made, Leaving
// before it is removed, and Gone afterwards: then its place is free. Any two differ in two
// bits. So if a bit is damaged, the word says none of them.
const (
	Gone    State = 0b000
	Waiting State = 0b011
	Inside  State = 0b101
	Leaving State = 0b110
)

// Stands reports whether the ticket is waiting or inside. Then its file should exist.
func (s State) Stands() bool { return s == Waiting || s == Inside }

func (s State) valid() bool { return bits.OnesCount8(uint8(s))%2 == 0 }

func newWord(number uint64, s State) word { return word(number<<3 | uint64(s)) }
func (w word) number() uint64             { return uint64(w >> 3) }
func (w word) state() State               { return State(w & 7) }

// maxLimit is the greatest limit that fits into a word.
const maxLimit = 1<<31 - 1

// tag is a rule, and in the upper half the checksum (CRC-32) of the rule and a file's name.
// So a file of another program that has the number of a ticket is not taken for it. A
// damaged rule is not believed.
func tag(r serializer.Rule, file string) word {
	w := word(min(max(r.Limit, 0), maxLimit)) << 1
	if r.Shared {
		w |= 1
	}
	sum := crc32.Update(uint32(w), crc32.IEEETable, unsafe.Slice(unsafe.StringData(file), len(file))) // a conversion would copy it
	return word(sum)<<32 | w
}

func ruleOf(w word) serializer.Rule {
	return serializer.Rule{Shared: w&1 == 1, Limit: int(w >> 1 & maxLimit)}
}

// The layout of the file. A place has two words.
const (
	textSize   = 4096
	placeBits  = 16
	allWords   = 2 << placeBits
	fileSize   = textSize + 8*allWords
	mostPlaces = 512 // in which the words of a ticket may lie; with 50,000 tickets, it is mostly in the first few
)

// placeOf returns the index of the first word of the nth place of a number.
func placeOf(number uint64, n int) int {
	return (int(number*0x9E37_79B9_7F4A_7C15>>(64-placeBits)) + n) * 2 % allWords
}

// Self names this process for people.
func Self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("pid %d on %s", os.Getpid(), cmp.Or(host, "unknown host"))
}

// file is an open owner file, mapped into memory.
type file struct {
	id  dir.ID
	fd  int
	mem []byte
}

func (f *file) mmap(access int) error {
	info, err := dir.Stat(f.fd)
	if err == nil {
		f.id = info.ID
		f.mem, err = unix.Mmap(f.fd, 0, fileSize, access, unix.MAP_SHARED)
	}
	return err
}

func (f *file) words() []word {
	return unsafe.Slice((*word)(unsafe.Pointer(&f.mem[textSize])), allWords)
}

func load(w *word) word     { return word(atomic.LoadUint64((*uint64)(w))) }
func store(w *word, n word) { atomic.StoreUint64((*uint64)(w), uint64(n)) }

// close also releases the lock of the file, if this process has it. While a file is mapped,
// it stays locked.
func (f *file) close() {
	_, _ = unix.Munmap(f.mem), unix.Close(f.fd)
	f.mem, f.fd = nil, -1
}
