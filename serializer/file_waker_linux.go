package serializer

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// To wake a process is to read a byte of its owner file. inotify reports that to the process
// (IN_ACCESS), and to no other one. It takes one system call, needs no further file, and
// no permission beyond that for reading the ledger.

// wakesOthers is the word of a new ledger that says so.
const wakesOthers = 1

// waker hears other processes wake this one, through an inotify instance of its own that
// lock files do not disturb. It also hears that a file in the directory was closed after
// writing: an owner file whose process ended, a marker, a pause, or another program's file.
type waker struct {
	*sleeper
	buf [4 << 10]byte

	file  *ownerFile // the local one whose reads are reported
	watch int        // its watch
	deaf  bool       // this system does not report reads
}

// newWaker returns nil if the system allows no further inotify instance or watch.
func newWaker(dir int, path string) *waker {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := watch(fd, dir, path, unix.IN_CLOSE_WRITE|unix.IN_ONLYDIR); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	s, err := newSleeper(fd, "waker")
	if err != nil {
		return nil
	}
	return &waker{sleeper: s}
}

// listen makes sure that reads of a local owner file are reported. It returns false if they
// are not.
func (w *waker) listen(o *ownerFile) (hears bool) {
	if w.deaf || w.file == o {
		return !w.deaf
	}
	err := w.conn.Control(func(fd uintptr) {
		if w.file != nil {
			_, _ = unix.InotifyRmWatch(int(fd), uint32(w.watch))
		}
		watch, err := unix.InotifyAddWatch(int(fd), "/proc/self/fd/"+strconv.Itoa(o.fd), unix.IN_ACCESS)
		w.file, w.watch = o, watch
		w.deaf = err != nil || !w.hearsReads(int(fd), o.fd)
	})
	w.deaf = w.deaf || err != nil
	return !w.deaf
}

// hearsReads tries whether a read is reported. Some systems only emulate Linux.
func (w *waker) hearsReads(inotify, file int) (hears bool) {
	touchByte(file)
	n, err := unix.Read(inotify, w.buf[:])
	for events := w.buf[:max(n, 0)]; err == nil && len(events) >= unix.SizeofInotifyEvent; {
		mask := binary.NativeEndian.Uint32(events[4:])
		hears = hears || mask&unix.IN_ACCESS != 0
		events = events[min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events)):]
	}
	return hears
}

// wait returns when another process wakes this one or a file is closed, at the latest after
// timeout.
func (w *waker) wait(timeout time.Duration) {
	if !w.begin(timeout) {
		return
	}
	err := w.conn.Read(func(fd uintptr) bool {
		_, err := unix.Read(int(fd), w.buf[:])
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if err != nil && !os.IsTimeout(err) {
		time.Sleep(min(timeout, pollInterval))
	}
}

// touchByte reads a byte of a file, which inotify reports.
func touchByte(fd int) {
	var one [1]byte
	_, _ = unix.Pread(fd, one[:], 0)
}

// peers are the processes that this one can wake.
type peers struct {
	mu  sync.Mutex
	all []peer
}

// peer is the owner file of a remote owner, with the first words of its ledger.
type peer struct {
	fd  int
	mem []byte
	ledger
}

// add adds an owner file. It must stay open until it is removed from the peers.
func (p *peers) add(fd int) {
	mem, err := mapFile(fd, firstWord*int(unsafe.Sizeof(uint64(0))), unix.PROT_READ)
	if err != nil {
		return // its process waits for the next sync
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, peer{fd, mem, ledgerIn(mem)})
}

func (p *peers) remove(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(other peer) bool {
		if other.fd == fd {
			_ = unix.Munmap(other.mem)
		}
		return other.fd == fd
	})
}

// wake wakes the processes that asked for a ticket.
func (p *peers) wake(stamp uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.all {
		if other.asks(stamp) {
			touchByte(other.fd)
		}
	}
}

// asks reports whether a process asked for a ticket.
func (p peer) asks(stamp uint64) (asks bool) {
	_ = sheltered(func() {
		for i := range maxAsked {
			asks = asks || p.get(askedWord+i) == stamp
		}
	})
	return asks
}
