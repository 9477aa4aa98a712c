package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"golang.org/x/sys/unix"
)

// processEnv holds the orders of a process of the run.
const processEnv = "ORDERLY_TORTURE_PROCESS"

// orders are the settings of a process.
type orders struct {
	Slot       int // the slot, and so the control block
	Number     int // unique
	Dir        string
	Engine     string
	Goroutines int
	Seed       uint64
	UID        int // the user to become, if it is not the current one
	GID        int // of that user
	Cancel     bool
	Timeout    bool
	Supersede  bool
}

// process is one of the processes that compete for the queues.
type process struct {
	orders
	*shared
	queues []testQueue
	engine atomic.Pointer[generation]
	opened int
	closed sync.WaitGroup
}

// generation is an engine between two reloads.
type generation struct {
	serializer.Engine
	number    int
	confirmed uint64 // the last pause that the process has confirmed
}

func isProcess() bool { return os.Getenv(processEnv) != "" }

// beProcess runs a process to its end and returns the exit status.
func beProcess() int {
	p, err := newProcess()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture: process:", err)
		return 1
	}
	p.run()
	return 0
}

func newProcess() (*process, error) {
	p := new(process)
	if err := json.Unmarshal([]byte(os.Getenv(processEnv)), &p.orders); err != nil {
		return nil, fmt.Errorf("reading orders: %w", err)
	}
	p.queues = queues(p.Supersede)
	var err error
	if p.shared, err = mapShared(os.NewFile(3, "shared")); err != nil {
		return nil, err
	}
	syscall.CloseOnExec(3)
	if p.UID != os.Getuid() {
		if err := becomeUser(p.UID, p.GID); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func becomeUser(uid, gid int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leaving groups: %w", err)
	}
	if err := syscall.Setgid(gid); err != nil {
		return fmt.Errorf("changing group: %w", err)
	}
	if err := syscall.Setuid(uid); err != nil {
		return fmt.Errorf("changing user: %w", err)
	}
	// A change of user clears this setting.
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

func (p *process) run() {
	if !p.open() {
		return
	}
	var group sync.WaitGroup
	for g := range p.Goroutines {
		group.Go(func() { p.fight(g) })
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	p.obey(done)
	_ = p.engine.Load().Close()
	p.closed.Wait()
}

// obey does what the control block orders, until done is closed.
func (p *process) obey(done <-chan struct{}) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var limit uint64
	reloads := make(chan struct{})
	var reloading sync.WaitGroup
	reloading.Go(func() {
		for range reloads {
			p.reload()
		}
	})
	defer reloading.Wait()
	defer close(reloads)
	reloading.Go(func() { p.obeyPauses(done) })
	var reloaded uint64
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if n := p.get(control(p.Slot, ctlFileLimit)); n != limit {
			limit = n
			limitFiles(n)
		}
		if n := p.get(control(p.Slot, ctlReloads)); n != reloaded {
			select {
			case reloads <- struct{}{}:
				reloaded = n
			default: // the previous reload is still in progress
			}
		}
	}
}

func (p *process) stopped() bool { return p.get(wordStop) != 0 }

// open opens the first or a new engine, however long that takes. An engine counts once it
// has admitted somebody: from then on, it knows the directory.
func (p *process) open() bool {
	for !p.stopped() {
		if e := p.tryOpen(); e != nil {
			p.opened++
			p.set(control(p.Slot, ctlEngines+p.opened%enginesKept), uint64(now()))
			p.set(control(p.Slot, ctlLastEntry), 0)
			p.engine.Store(&generation{Engine: e, number: p.opened})
			p.set(control(p.Slot, ctlUp), 1)
			return true
		}
		p.add(control(p.Slot, ctlOpenErrors), 1)
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func (p *process) tryOpen() serializer.Engine {
	e, err := engines[p.Engine](p.Dir, p.clock)
	if err != nil {
		return nil
	}
	turn, err := e.Enter(context.Background(), serializer.Arrival{
		Queue:   fmt.Sprintf("own_%d_%d_", p.Number, p.opened),
		Timeout: longTimeout,
	})
	if err != nil {
		_ = e.Close()
		return nil
	}
	turn.Leave()
	return e
}

// reload opens another engine on the same directory and closes the old one, as a server
// does when it reloads its configuration.
func (p *process) reload() {
	old := p.engine.Load()
	if !p.open() {
		return
	}
	p.closed.Go(func() { _ = old.Close() })
}

// clock is the clock from which the engine numbers its tickets. The engine reads it while
// it holds the guard, so this is also the place for ctlGuard.
func (p *process) clock() time.Time {
	p.hold(ctlGuard)
	return time.Now().Add(time.Duration(p.get(control(p.Slot, ctlClock))))
}

// hold stops here if a fault asks for it, until the fault ends that.
func (p *process) hold(point int) {
	word := control(p.Slot, point)
	if !p.swap(word, holdNext, holdBegun) {
		return
	}
	for p.get(word) == holdBegun && !p.stopped() {
		time.Sleep(time.Millisecond)
	}
}

// limitFiles leaves the process n-1 more file descriptors than it has; 0 removes the
// limit.
func limitFiles(n uint64) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	if n > 0 {
		if open, err := os.ReadDir("/proc/self/fd"); err == nil {
			limit.Cur = min(limit.Max, uint64(len(open))-1+n-1)
		}
	}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// Outcomes of an arrival, in the order of their counters.
const (
	entered = iota
	timedOut
	gone
	storage
	other
	superseded
	starved // timed out although nothing takes that long
	outcomes
)

var outcomeNames = [outcomes]string{"entered", "timeout", "gone", "storage", "other", "superseded", "starved"}

const (
	longTimeout  = 20 * time.Second
	shortTimeout = 20 * time.Millisecond
)

// fight enters queues until the run ends.
func (p *process) fight(g int) {
	r := rand.New(rand.NewPCG(p.Seed, uint64(p.Number)<<16|uint64(g)))
	word := func(w int) int { return goroutineWord(p.Slot, g, w) }
	for port := uint16(1024); !p.stopped(); port++ {
		q := randomQueue(r, p.queues)
		a := p.queues[q].arrival(r)
		a.Client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(p.Slot), byte(g)}), port)
		if p.Timeout && r.IntN(50) == 0 {
			a.Timeout = time.Duration(1 + r.Int64N(int64(shortTimeout)))
		}
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if p.Cancel && r.IntN(50) == 0 {
			ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(r.Int64N(int64(shortTimeout))), errHungUp)
		}
		p.set(word(goSince), uint64(now()))
		p.set(word(goDeadline), uint64(now()+int64(a.Timeout)))
		p.add(word(goBegun), 1)
		outcome := p.enter(ctx, r, g, q, a)
		p.add(word(goOutcomes+outcome), 1)
		cancel()
		if outcome == storage || outcome == other || outcome == superseded {
			time.Sleep(time.Duration(1+r.IntN(5)) * time.Millisecond)
		}
	}
}

var errHungUp = errors.New("the client hung up")

// enter is one arrival, from Enter to Leave.
func (p *process) enter(ctx context.Context, r *rand.Rand, g, q int, a serializer.Arrival) (outcome int) {
	e := p.engine.Load()
	arrived := now()
	turn, err := e.Enter(ctx, a)
	if err != nil {
		if a.DropOldest {
			p.noteRefusal(err, record{who: who{p.Number, g}, queue: q, shared: a.Rule.Shared, engine: e.number, arrived: arrived, at: now()})
		}
		return outcomeOf(err, a)
	}
	rec := record{
		who:     who{p.Number, g},
		queue:   q,
		shared:  a.Rule.Shared,
		engine:  e.number,
		token:   turn.Token(),
		arrived: arrived,
		at:      now(),
	}
	p.note(rec)
	if e == p.engine.Load() {
		p.raise(control(p.Slot, ctlLastEntry), uint64(arrived))
	}
	p.set(wordHolders+q, uint64(p.Slot+1))
	p.set(goroutineWord(p.Slot, g, goDeadline), uint64(now()+int64(longTimeout)))
	if q == 0 {
		p.hold(ctlInside)
	}
	stay(r)
	rec.leaving = true
	rec.at = now()
	p.note(rec)
	turn.Leave()
	return entered
}

// stay is the time inside. Mostly it is almost none, so that the queue is the bottleneck.
// Sometimes it is long enough to show others who are admitted by mistake.
func stay(r *rand.Rand) {
	switch n := r.IntN(1000); {
	case n < 600:
	case n < 990:
		runtime.Gosched()
	default:
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	}
}

func outcomeOf(err error, a serializer.Arrival) int {
	var refused *serializer.Refused
	if !errors.As(err, &refused) {
		return other
	}
	switch refused.Reason {
	case serializer.ReasonTimeout:
		if a.Timeout == longTimeout {
			return starved
		}
		return timedOut
	case serializer.ReasonGone:
		return gone
	case serializer.ReasonStorage:
		return storage
	case serializer.ReasonSuperseded:
		return superseded
	}
	return other
}
