package main

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventLog is a pipe of records from all processes to the oracle. The kernel takes each
// one completely or not at all, and keeps their order.
type eventLog struct{ *os.File }

// record is one event. It has no pointers.
type record struct {
	who
	what    what
	queue   int
	reader  bool
	outcome int // of an arrival that was refused
	slot    int // of the caller's slot in its queue's; -1 without slots
	token   uint64
	at      int64 // CLOCK_MONOTONIC
	opened  int64 // when the engine had first worked in the directory; it identifies the engine in its process
	arrived int64 // when Enter was called; of a pause, its number
	began   int64 // the same, of the first turn that the caller had already
}

// who is one goroutine of one process.
type who struct {
	process   int // the number of the process, in the order in which they were started
	goroutine int
}

// what is the kind of a record.
type what int

const (
	enters   what = iota
	leaves        // just before it does
	refuses       // the arrival, or an attempt to open an engine
	revokes       // the turn of a holder
	evicts        // somebody is about to evict this ticket
	confirms      // the engine obeys a pause and admits no token above this one
	dies          // the process is about to be killed
)

func (r *record) bytes() []byte { return (*[unsafe.Sizeof(*r)]byte)(unsafe.Pointer(r))[:] }

func (l eventLog) note(r record) { _, _ = l.Write(r.bytes()) }

// now reads CLOCK_MONOTONIC, which is the same for all processes.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func since(t int64) time.Duration { return time.Duration(now() - t) }
