package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is the memory shared by all processes of a run: switches, what each process is
// doing, and the log.
//
// It consists of 64-bit words that are accessed only atomically. So it is consistent at
// any moment, even when a process is killed.
type shared struct {
	file  *os.File
	words []uint64
}

// The layout, in words.
const (
	wordLogHint = 0  // no slot of the log before this one is free
	wordStop    = 1  // processes should end
	wordPause   = 2  // the pause that processes should confirm; see pauseWord
	wordHolders = 16 // for each queue: 1 + the slot of the process that was last inside

	controlStart = 64
	controlWords = 4096
	logStart     = 1 << 19
	recordWords  = 4
)

// Words of a process's control block.
const (
	ctlClock      = iota // the offset of its clock, in nanoseconds
	ctlGuard             // see hold: while it issues tickets
	ctlReloads           // how often it should have reopened its engine
	ctlFileLimit         // see limitFiles; 0 is no limit
	ctlUp                // 1 once its first engine works
	ctlOpenErrors        // how often its engine could not be opened
	ctlInside            // see hold: inside the first queue
	ctlLastEntry         // the arrival time of the last entry through its newest engine
	ctlOrder             // the pause that it should make or end; see pauseWord
	ctlOrderEnd          // the end of that pause, in nanoseconds of the wall clock; 0 resumes
	ctlOrderDone         // the last order that it has carried out
	ctlKnows             // the last pause that its newest engine knows
	ctlEngines    = 64   // when each of its engines had first worked in the directory
	ctlGoroutines = 320  // the states of its goroutines
)

const enginesKept = 256

// The values of a hold, which makes a process wait at a certain point when it next gets
// there. So it can be stopped or killed exactly there.
const (
	holdNot   = iota
	holdNext  // it should stop
	holdBegun // it has stopped
)

// Words of a goroutine's state.
const (
	goBegun    = iota // number of arrivals
	goSince           // when Enter was called
	goDeadline        // when Enter should have returned
	goOutcomes        // one counter for each outcome
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

// record is one entry or exit. The faults "pause" and "supersede" add records of other
// kinds.
type record struct {
	who
	leaving bool
	knows   bool // the engine obeys a pause and admits no token above this one; arrived is the pause
	refused bool // an arrival in a queue with keep was refused
	ousted  bool // it was superseded
	queue   int
	shared  bool
	engine  int // the number of the engine in its process, modulo enginesKept
	token   uint64
	at      int64 // CLOCK_MONOTONIC
	arrived int64 // when Enter was called
}

// who is one goroutine of one process.
type who struct {
	process   int // the number of the process, in the order in which they were started
	goroutine int
}

// flags are the bits of a record's header behind the first one, which marks it as used.
func (r *record) flags() [5]*bool {
	return [...]*bool{&r.leaving, &r.shared, &r.knows, &r.refused, &r.ousted}
}

// A record's header.
const (
	bitUsed uint64 = 1 << 63

	shiftEngine  = 40
	shiftQueue   = 32
	shiftRoutine = 20
	maxProcesses = 1 << shiftRoutine
)

func (r record) header() uint64 {
	h := bitUsed | uint64(r.engine%enginesKept<<shiftEngine|r.queue<<shiftQueue|r.goroutine<<shiftRoutine|r.process)
	for i, flag := range r.flags() {
		if *flag {
			h |= bitUsed >> (i + 1)
		}
	}
	return h
}

// note adds a record to the log. One operation on the header takes the slot and says who
// did what. It returns false if the log is full.
func (s *shared) note(r record) bool {
	at := s.claim(r.header())
	if at < 0 {
		return false
	}
	s.set(at+1, r.token)
	s.set(at+2, uint64(r.at))
	s.set(at+3, uint64(max(r.arrived, 1))) // last, because it completes the record
	return true
}

// claim takes the first free slot of the log. All slots before the hint are taken. So the
// first free one after the hint is the first of all.
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

// isFull reports whether the log has no room for another record.
func (s *shared) isFull() bool { return s.get(logStart+(s.records()-1)*recordWords) != 0 }

func (s *shared) raise(word int, v uint64) {
	for old := s.get(word); old < v && !s.swap(word, old, v); old = s.get(word) {
	}
}

// read returns the record in a slot of the log. complete is false until its writer has
// finished; then only the header is known.
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
	for i, flag := range r.flags() {
		*flag = h&(bitUsed>>(i+1)) != 0
	}
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
