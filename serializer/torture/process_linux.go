package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// processEnv makes the program a process of a run, by the run's configuration.
const processEnv = "ORDERLY_TORTURE_PROCESS"

// process is one of the processes that compete for the queues. The harness calls its
// exported methods through two pipes.
type process struct {
	config
	log      *os.File
	engine   atomic.Pointer[generation]
	closing  sync.WaitGroup
	stopping atomic.Bool
	ahead    atomic.Int64            // of its clock
	catching [anywhere]chan struct{} // by point
}

// generation is an engine between two reloads.
type generation struct {
	*serializer.Engine
	opened int64 // it counts once it has admitted somebody: from then on, it knows the directory
}

// connection is one of two pipes.
type connection struct {
	io.Reader
	io.WriteCloser
}

// beProcessIfAsked does not return if this program was started to be a process.
func beProcessIfAsked() {
	text, asked := os.LookupEnv(processEnv)
	if !asked {
		return
	}
	p := &process{log: os.NewFile(3, "log")}
	if err := json.Unmarshal([]byte(text), &p.config); err != nil {
		fail(err)
	}
	for i := range p.catching {
		p.catching[i] = make(chan struct{})
	}
	debug.SetTraceback("all") // if a call is lost
	p.open()
	server := rpc.NewServer()
	_ = server.RegisterName("Process", p)
	go server.ServeConn(connection{os.Stdin, os.Stdout})
	var callers sync.WaitGroup
	for g := range p.Goroutines {
		callers.Go(func() { p.call(g) })
	}
	callers.Wait()
	_ = p.engine.Load().Close()
	p.closing.Wait()
	os.Exit(0)
}

// graceTime covers delays that are not the queue's fault: a stopped process, a busy
// machine.
const graceTime = 15 * time.Second

// open opens the first or a new engine, however long that takes. It lets one enter, so it knows the directory.
func (p *process) open() {
	for ; ; time.Sleep(5 * time.Millisecond) {
		if store, err := openers[p.Store](p); err == nil {
			e := serializer.New(store, serializer.Options{})
			own := serializer.Arrival{Queue: fmt.Sprintf("own_%d_%d_", p.Number, now()), Timeout: p.Patience}
			if turn, err := e.Enter(context.Background(), own); err == nil {
				turn.Leave()
				g := &generation{e, now()}
				p.put(opens, record{opened: g.opened})
				p.engine.Store(g)
				return
			}
			_ = e.Close()
		}
		p.put(refuses, record{outcome: failed})
	}
}

// Reload opens another engine on the same directory and closes the old one, as a server
// does when it reloads its configuration.
func (p *process) Reload(uint64, *bool) error {
	old := p.engine.Load()
	p.open()
	p.closing.Go(func() { _ = old.Close() })
	return nil
}

// Stop makes all callers return.
func (p *process) Stop(uint64, *bool) error {
	p.stopping.Store(true)
	return nil
}

// StepClock sets how far the process's clock is ahead, by a random number.
func (p *process) StepClock(random uint64, _ *bool) error {
	steps := []time.Duration{0, -time.Hour, 24 * time.Hour}
	p.ahead.Store(int64(steps[random%uint64(len(steps))]))
	return nil
}

// clock is the clock from which the store numbers its tickets. It is read while the guard
// is held.
func (p *process) clock() time.Time {
	p.pass(inGuard)
	return time.Now().Add(time.Duration(p.ahead.Load()))
}

// openers open a store of lock files. Tests add wrong ones, whose defects must be found.
var openers = map[string]func(p *process) (serializer.Store, error){"lockfile": openLockfile}

func openLockfile(p *process) (serializer.Store, error) {
	return lockfile.Open(p.Dir, lockfile.Options{Clock: p.clock})
}

// record is one event. It has no pointers. All processes write their records into one pipe to the oracle. The
// kernel takes each one completely or not at all, and keeps their order.
type record struct {
	what      what
	process   int // the number of the process, in the order in which they were started
	goroutine int
	queue     int
	reader    bool
	outcome   int // of an arrival that was refused
	slot      int // of the caller's slot in its queue's; -1 without slots
	token     uint64
	at        int64 // CLOCK_MONOTONIC
	opened    int64 // when the engine had first worked in the directory; it identifies the engine in its process
	arrived   int64 // when Enter was called; of a pause, its number
	began     int64 // the same, of the first turn that the caller had already
}

// what is the kind of a record.
type what int

const (
	opens what = iota // the process has a new engine
	enters
	leaves   // just before it does
	refuses  // the arrival, or an attempt to open an engine
	revokes  // the turn of a holder
	evicts   // somebody is about to evict this ticket
	confirms // the engine obeys a pause and admits no token above this one
	dies     // the process is about to be killed
)

func (r *record) bytes() []byte { return (*[unsafe.Sizeof(*r)]byte)(unsafe.Pointer(r))[:] }

// put adds a record of the process to the log.
func (p *process) put(w what, r record) {
	r.what, r.process, r.at = w, p.Number, now()
	_, _ = p.log.Write(r.bytes())
}

// now reads CLOCK_MONOTONIC, which is the same for all processes.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func since(t int64) time.Duration { return time.Duration(now() - t) }
