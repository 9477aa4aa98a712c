package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is the memory that all processes of a run have in common: switches,
// what each process does, and the log.
//
// Everything is a 64-bit word that is only touched atomically, so it is whole
// at any moment, also at the moment in which a process is killed.
type shared struct {
	file  *os.File
	words []uint64
}

// Where things are, in words.
const (
	wordLogHint = 0  // no place in the log before this one is free
	wordStop    = 1  // processes should end
	wordPause   = 2  // the pause that processes should say they know of; see pauseWord
	wordHolders = 16 // of each queue: the slot, plus one, of the process last inside

	controlStart = 64
	controlWords = 4096
	logStart     = 1 << 19
	recordWords  = 4
)

// Words of a process's control block.
const (
	ctlClock      = iota // how far its clock is off, in nanoseconds
	ctlGuard             // see hold: in the middle of giving out tickets
	ctlReloads           // how many times it should have reopened its engine
	ctlFileLimit         // how many file descriptors it should leave itself; 0 is no limit
	ctlUp                // 1 once its first engine works
	ctlOpenErrors        // how often its engine could not be opened
	ctlInside            // see hold: inside the first queue
	ctlLastEntry         // when the last arrival that got in had come, through the newest engine
	ctlOrder             // the pause that it should make or end; see pauseWord
	ctlOrderEnd          // of that pause, in nanoseconds of the wall clock; 0 ends it
	ctlOrderDone         // the order it has carried out
	ctlKnows             // the last pause that its newest engine knows of
	ctlEngines    = 64   // when each of its engines had come to know the directory
	ctlGoroutines = 320  // their states
)

const enginesKept = 256

// hold makes a process stay at a certain point when it next comes there, so that
// it can be stopped or killed there for sure.
const (
	holdNot   = iota
	holdNext  // it should stay
	holdBegun // it stays
)

// Words of a goroutine's state.
const (
	goBegun    = iota // arrivals
	goSince           // when Enter was called
	goDeadline        // when Enter should be back
	goOutcomes        // one count an outcome
	goWords    = goOutcomes + outcomes
)

func newShared(records int) (*shared, error) {
	fd, err := unix.MemfdCreate("torture", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making shared memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "torture")
	if err := file.Truncate(int64(logStart+records*recordWords) * 8); err != nil {
		return nil, fmt.Errorf("making shared memory: %w", err)
	}
	return mapShared(file)
}

func mapShared(file *os.File) (*shared, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("mapping shared memory: %w", err)
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping shared memory: %w", err)
	}
	return &shared{file: file, words: unsafe.Slice((*uint64)(unsafe.Pointer(&mem[0])), len(mem)/8)}, nil
}

func (s *shared) close() {
	_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(&s.words[0])), len(s.words)*8))
	s.file.Close()
}

func (s *shared) get(word int) uint64    { return atomic.LoadUint64(&s.words[word]) }
func (s *shared) set(word int, v uint64) { atomic.StoreUint64(&s.words[word], v) }
func (s *shared) add(word int, v uint64) { atomic.AddUint64(&s.words[word], v) }
func (s *shared) swap(word int, old, v uint64) bool {
	return atomic.CompareAndSwapUint64(&s.words[word], old, v)
}

func control(slot, word int) int { return controlStart + slot*controlWords + word }

func goroutineWord(slot, g, word int) int { return control(slot, ctlGoroutines+g*goWords+word) }

func (s *shared) records() int { return (len(s.words) - logStart) / recordWords }

// record is one entry or exit. With the faults "pause" and "supersede", there are some
// of other kinds, too.
type record struct {
	who
	leaving bool
	knows   bool // the engine obeys a pause, and lets in no token above this one; arrived is the pause
	refused bool // an arrival of a queue in which the latest supersedes
	ousted  bool // it was refused because it was superseded
	queue   int
	shared  bool
	engine  int // of its process: the number of the engine modulo enginesKept
	token   uint64
	at      int64 // CLOCK_MONOTONIC
	arrived int64 // of an entry: when Enter was called
}

// who is one goroutine of one process.
type who struct {
	process   int // number of the process, in the order they were started
	goroutine int
}

// A record's header.
const (
	bitUsed uint64 = 1 << (63 - iota)
	bitLeaving
	bitShared
	bitKnows
	bitRefused
	bitOusted

	shiftEngine  = 40
	shiftQueue   = 32
	shiftRoutine = 20
	maxProcesses = 1 << shiftRoutine
)

func (r record) header() uint64 {
	h := bitUsed | uint64(r.engine%enginesKept<<shiftEngine|r.queue<<shiftQueue|r.goroutine<<shiftRoutine|r.process)
	if r.leaving {
		h |= bitLeaving
	}
	if r.shared {
		h |= bitShared
	}
	if r.knows {
		h |= bitKnows
	}
	if r.refused {
		h |= bitRefused
	}
	if r.ousted {
		h |= bitOusted
	}
	return h
}

// note adds a record to the log. The header takes the place and says who and
// what in one operation. It reports false once the log is full.
func (s *shared) note(r record) bool {
	at := s.claim(r.header())
	if at < 0 {
		return false
	}
	s.set(at+1, r.token)
	s.set(at+2, uint64(r.at))
	s.set(at+3, uint64(max(r.arrived, 1))) // last: the record is complete
	return true
}

// claim takes the first free place in the log. All places before the hint are
// taken, so whoever finds a free one from there has found the first.
func (s *shared) claim(header uint64) int {
	for i := int(s.get(wordLogHint)); i < s.records(); i++ {
		at := logStart + i*recordWords
		if s.get(at) == 0 && s.swap(at, 0, header) {
			s.raise(wordLogHint, uint64(i+1))
			return at
		}
	}
	return -1
}

// isFull reports whether no record fits into the log any more.
func (s *shared) isFull() bool { return s.get(logStart+(s.records()-1)*recordWords) != 0 }

func (s *shared) raise(word int, v uint64) {
	for old := s.get(word); old < v && !s.swap(word, old, v); old = s.get(word) {
	}
}

// read returns the record at a place in the log. complete is false while its
// writer has not finished; then it says no more than who did what.
func (s *shared) read(i int) (r record, used, complete bool) {
	at := logStart + i*recordWords
	h := s.get(at)
	if h == 0 {
		return r, false, false
	}
	r.process = int(h & (maxProcesses - 1))
	r.goroutine = int(h >> shiftRoutine & 0xfff)
	r.queue = int(h >> shiftQueue & 0xff)
	r.engine = int(h >> shiftEngine & 0xff)
	r.leaving = h&bitLeaving != 0
	r.shared = h&bitShared != 0
	r.knows = h&bitKnows != 0
	r.refused = h&bitRefused != 0
	r.ousted = h&bitOusted != 0
	r.arrived = int64(s.get(at + 3))
	complete = r.arrived != 0
	if complete {
		r.token, r.at = s.get(at+1), int64(s.get(at+2))
	}
	return r, true, complete
}

// now reads CLOCK_MONOTONIC, which is the same for all processes.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func since(t int64) time.Duration { return time.Duration(now() - t) }
