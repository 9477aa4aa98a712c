package testlease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Server is the server of a store, as the tests of promises need it. What fails ends the test.
type Server interface {
	Address() string
	Kill()
	Run() // again
	Freeze()
	Thaw()
	Tickets() int // all that it has
}

// Promises are tests of what a store promises that leases its tickets, with the faults of its server.
type Promises[S Server] struct {
	TTL   time.Duration
	Start func(t testing.TB, settings ...string) S
	Open  Open

	Saving    []string                // settings with which a server keeps all that it acknowledges
	Kept      map[string]Fault[S]     // costs nobody a turn or a place
	Lost      map[string]Loss[S]      // costs everybody the turns and places
	Rights    map[string]Right[S]     // to write, which a user loses
	Clocks    map[string]func(S)      // settings of the server's clock
	Elsewhere map[string]Elsewhere[S] // where a process comes to another history
}

// Fault costs nobody a turn or a place.
type Fault[S Server] struct {
	Settings []string      // of the server
	TTL      time.Duration // if not that of the promises
	Do       func(t *testing.T, s S, links []*testrelay.Relay)
}

// Loss is what an operator does.
type Loss[S Server] struct {
	Do      func(S)
	Reason  serializer.Reason // of the waiters' refusals; empty is any
	Restart string            // what the store says until its process starts anew; empty is that it goes on
}

// Right is one to write.
type Right[S Server] struct {
	Prepare    func(S) // the user whose right it is; may be nil
	Open       Open    // as that user
	Other      Open    // of the one who has all rights, if it is not that of the promises
	Lose, Back func(S)
	Says       string // the refusal
	Revokes    bool   // the lease is not renewed without it
}

// Elsewhere is another history. Move begins it, and leads a process there, and Back leads it back.
type Elsewhere[S Server] struct {
	Prepare func(t *testing.T, s S, link *testrelay.Relay) (move, back func())
	Found   string // what the process says
}

// Run runs all tests.
func (p Promises[S]) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"process stops": p.processStops, "cut off": p.cutOff, "server silent": p.ServerSilent,
		"server killed": p.serverKilled, "kept": p.kept,
		"lost": p.lost, "right lost": p.rightLost, "elsewhere": p.elsewhere, "evicted": p.evicted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// engine makes one that lets arrivals in.
func (p Promises[S]) engine(t testing.TB, address string, ttl time.Duration) *serializer.Engine {
	t.Helper()
	store, err := p.Open(address, ttl)
	Must(t, err)
	e := NewEngine(t, store)
	EnterSoon(t, e)
	return e
}

func waitUntilEmpty(t *testing.T, s Server) {
	t.Helper()
	wait.Until(t, "no ticket is left", func() bool { return s.Tickets() == 0 })
}

// each runs a test for each row of a table.
func each[T any](t *testing.T, rows map[string]T, test func(*testing.T, T)) {
	t.Helper()
	if len(rows) == 0 {
		t.Error("there are no faults")
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, row)
		})
	}
}

// A process with the turn is killed, or stopped for longer than its lease. The next one enters at
// most two seconds after the lease. The stopped one learns of it when it wakes. Bug: with a slow link
// to Redis, the time of a request was added to the time between polls, and the clock of sessions moves
// with these.
func (p Promises[S]) processStops(t *testing.T) {
	type stop struct {
		signal syscall.Signal
		delay  time.Duration // of the link of those who wait
	}
	each(t, map[string]stop{
		"killed": {signal: syscall.SIGKILL}, "stopped": {signal: syscall.SIGSTOP}, "killed, slow link": {syscall.SIGKILL, 500 * time.Millisecond},
	}, func(t *testing.T, stop stop) {
		s := p.Start(t)
		link := testrelay.Start(t, s.Address())
		e := p.engine(t, link.Addr, p.TTL)
		holder := startHolder(t, s.Address(), p.TTL)
		next := Join(t, e)
		link.Slow(stop.delay)
		stopped := time.Now()
		holder.Signal(stop.signal)
		next.LeaveWithin(t, stopped, p.TTL+2*time.Second)
		if stop.signal == syscall.SIGSTOP {
			holder.Signal(syscall.SIGCONT)
			holder.AwaitText("revoked")
		}
	})
}

// A process with the turn is cut off, or gets no answers, while somebody sets the server's clock. It
// gives up before the server lets others in. Those of its callers who come then wait for its holder.
// Bug: leases of PostgreSQL ended by its clock. When that was set forward, another one entered beside
// the holder. When it was set back, the tickets of the dead stayed.
func (p Promises[S]) cutOff(t *testing.T) {
	type cut struct {
		fault func(*testrelay.Relay, bool)
		set   func(S)
	}
	cuts := map[string]cut{"parted": {(*testrelay.Relay).Part, func(S) {}}, "deaf": {(*testrelay.Relay).Hold, func(S) {}}}
	for name, set := range p.Clocks {
		cuts["parted, clock "+name] = cut{(*testrelay.Relay).Part, set}
	}
	each(t, cuts, func(t *testing.T, cut cut) {
		s := p.Start(t)
		link := testrelay.Start(t, s.Address())
		away, other := p.engine(t, link.Addr, p.TTL), p.engine(t, s.Address(), p.TTL)
		var next *Caller
		a := Arrival(Queue, wait.Patience)
		a.Revoke = func(error) {
			if next.Over() || s.Tickets() == 0 {
				t.Error("the server has ended the lease before the process gave it up")
			}
		}
		holder := Enter(t, away, a)
		waiting := Join(t, away)
		next = Join(t, other)
		since := time.Now()
		cut.fault(link, true)
		cut.set(s)
		_ = holder.WantRevoked(t, serializer.ErrLost)
		if took := time.Since(since); took > p.TTL {
			t.Errorf("revoked after %s", took)
		}
		if err := waiting.End(t); !errors.Is(err, serializer.ErrLost) {
			t.Errorf("the waiter ends with %v", err)
		}
		if err := Arrive(away, Arrival(Queue, 0)).End(t); serializer.ReasonOf(err) != serializer.ReasonStorage {
			t.Errorf("an arrival without a lease ends with %v", err)
		}
		next.LeaveWithin(t, since, 2*p.TTL+2*time.Second) // the server may have renewed the lease of a deaf process
		cut.fault(link, false)
		link.Cut()
		wait.Until(t, "a newcomer waits for the holder, which has not left", func() bool {
			return errors.Is(Arrive(away, Arrival(Queue, time.Second)).End(t), serializer.ErrTimeout)
		})
		holder.Turn.Leave()
		EnterSoon(t, away)
		waitUntilEmpty(t, s)
	})
}

// ServerSilent has the server stand still for longer than three leases. The holder is revoked in time,
// nobody enters meanwhile, and soon after the end, clients of all processes enter again. Bug: the lease of
// a process that had left stayed for more than two times to live, and the process itself waited for its
// end: another one.
func (p Promises[S]) ServerSilent(t *testing.T) {
	each(t, map[string]int{"one process": 1, "three": 3}, func(t *testing.T, processes int) {
		s, engines, silence := p.Start(t), []*serializer.Engine(nil), 3*p.TTL+2*time.Second
		if *Long {
			silence = 40 * time.Second
		}
		for range processes {
			engines = append(engines, p.engine(t, s.Address(), p.TTL))
		}
		holder, waiter := Enter(t, engines[0]), Join(t, engines[processes-1])
		frozen := time.Now()
		s.Freeze()
		_ = holder.WantRevoked(t, serializer.ErrLost)
		revoked := time.Since(frozen)
		if waiter.End(t) == nil {
			t.Error("the waiter has entered")
		}
		holder.Turn.Leave()
		clients := Come(Queue, 1, engines...)
		time.Sleep(time.Until(frozen.Add(silence)))
		if n := clients.Turns(); n > 0 {
			t.Errorf("%d have entered without a server", n)
		}
		s.Thaw()
		thawed := time.Now()
		store, err := p.Open(s.Address(), p.TTL)
		Must(t, err)
		Ready(t, NewEngine(t, store))
		busy := 5 * time.Since(thawed) // a machine on which a new process needs long slows down the others, too
		wait.Until(t, "somebody enters", func() bool { return clients.Turns() > 0 })
		for _, e := range engines {
			WantGreater(t, EnterSoon(t, e), holder.Turn.Token())
		}
		clients.End()
		Must(t, clients.Wrong)
		took := clients.First.Entered.Sub(thawed)
		t.Logf("silent for %s: revoked after %.2f s; the next one enters after %.2f s", silence, revoked.Seconds(), took.Seconds())
		// A leader of etcd renews leases until it notices that it is alone, which takes a second.
		if revoked > p.TTL+time.Second+busy {
			t.Errorf("revoked after %s", revoked)
		}
		if took > 2*time.Second+busy {
			t.Errorf("the next one enters %s after the server is back", took)
		}
	})
}

// While the server is down, nobody enters or gets a ticket. Once it is back, all go on where they were.
func (p Promises[S]) serverKilled(t *testing.T) {
	s, ttl := p.Start(t, p.Saving...), 4*p.TTL
	here, there := p.engine(t, s.Address(), ttl), p.engine(t, s.Address(), ttl)
	holder, waiting := Enter(t, here), Join(t, there)
	s.Kill()
	holder.Turn.Leave()
	late := Arrive(here, Arrival(Queue, wait.Patience))
	if wait.Poll(300*time.Millisecond, func() bool { return waiting.Over() || late.Over() }) {
		t.Errorf("without a server: the waiter's wait has ended: %t, that of an arrival: %t", waiting.Over(), late.Over())
	}
	s.Run()
	waiting.Wait(t).Leave()
	late.Wait(t).Leave()
	WantGreater(t, late.Turn.Token(), WantGreater(t, waiting.Turn.Token(), holder.Turn.Token()))
	holder.WantHeld(t)
	waitUntilEmpty(t, s)
}

// What costs nobody a turn or a place: the holder keeps its turn, and the waiter gets it then.
func (p Promises[S]) kept(t *testing.T) {
	each(t, p.Kept, func(t *testing.T, fault Fault[S]) {
		ttl := max(fault.TTL, p.TTL)
		s := p.Start(t, fault.Settings...)
		links := []*testrelay.Relay{testrelay.Start(t, s.Address()), testrelay.Start(t, s.Address())}
		engines := []*serializer.Engine{p.engine(t, links[0].Addr, ttl), p.engine(t, links[1].Addr, ttl)}
		holder, waiter := Enter(t, engines[0]), Join(t, engines[1])
		fault.Do(t, s, links)
		holder.Turn.Leave()
		token := waiter.Wait(t).Token()
		waiter.Turn.Leave()
		holder.WantHeld(t)
		waiter.WantHeld(t)
		WantGreater(t, EnterSoon(t, engines[0]), WantGreater(t, token, holder.Turn.Token()))
		waitUntilEmpty(t, s)
	})
}

// An operator deletes what the store keeps. The holder's turn is revoked, waiters are refused, and the
// queue goes on with greater tokens. If the history itself is gone, it may go on only in processes
// that start anew.
func (p Promises[S]) lost(t *testing.T) {
	each(t, p.Lost, func(t *testing.T, loss Loss[S]) {
		s := p.Start(t)
		e, other := p.engine(t, s.Address(), p.TTL), p.engine(t, s.Address(), p.TTL)
		holder, waiters := Enter(t, e), []*Caller{Join(t, e), Join(t, other)}
		loss.Do(s)
		_ = holder.WantRevoked(t, serializer.ErrLost)
		for _, waiter := range waiters {
			if err := waiter.End(t); err == nil || loss.Reason != "" && serializer.ReasonOf(err) != loss.Reason {
				t.Errorf("a waiter ends with %v; expected %s", err, loss.Reason)
			}
		}
		holder.Turn.Leave()
		if loss.Restart != "" {
			WantRefused(t, other, loss.Restart)
			Must(t, other.Close())
			other = p.engine(t, s.Address(), p.TTL)
		}
		WantGreater(t, EnterSoon(t, other), holder.Turn.Token())
		if loss.Restart == "" { // otherwise, old tickets may have stayed
			EnterSoon(t, e)
			waitUntilEmpty(t, s)
		}
	})
}

// A process whose user may no longer write cannot take its tickets out. Its lease ends, the next one
// enters, and its arrivals are refused with the reason, until the right is back. Bug: a process renewed
// its lease in etcd all the same, and so blocked all others.
func (p Promises[S]) rightLost(t *testing.T) {
	each(t, p.Rights, func(t *testing.T, right Right[S]) {
		s, user, others := p.Start(t), p, p
		if right.Prepare != nil {
			right.Prepare(s)
		}
		if right.Other != nil {
			others.Open = right.Other
		}
		user.Open = right.Open
		other, e := others.engine(t, s.Address(), p.TTL), user.engine(t, s.Address(), p.TTL)
		holder, next := Enter(t, e), Join(t, other)
		since := time.Now()
		right.Lose(s)
		if !right.Revokes {
			holder.Turn.Leave()
		} else if err := holder.WantRevoked(t, serializer.ErrLost); !strings.Contains(err.Error(), right.Says) {
			t.Errorf("revoked with %v", err)
		}
		most := p.TTL + 2*time.Second
		if right.Revokes {
			most += p.TTL // a request that fails in its middle may have renewed the lease
		}
		next.LeaveWithin(t, since, most)
		holder.Turn.Leave()
		WantRefused(t, e, right.Says)
		right.Back(s)
		EnterSoon(t, e)
		EnterSoon(t, other)
		waitUntilEmpty(t, s)
	})
}

// One of two processes comes to another history than the one that it knows. It is refused there, and
// learns what it has found, until it comes back. Bug: it waited there for its time to live, and let
// callers in beside the other one.
func (p Promises[S]) elsewhere(t *testing.T) {
	each(t, p.Elsewhere, func(t *testing.T, where Elsewhere[S]) {
		s := p.Start(t)
		link := testrelay.Start(t, s.Address())
		move, back := where.Prepare(t, s, link)
		stays, moved := p.engine(t, s.Address(), p.TTL), p.engine(t, link.Addr, p.TTL)
		EnterSoon(t, moved) // more than a second after another server was started
		holder := Enter(t, stays)
		move()
		link.Cut()
		end := time.Now().Add(2 * p.TTL)
		wait.Until(t, "arrivals are refused with "+where.Found, func() bool {
			err := Arrive(moved, Arrival(Queue, 5*time.Second)).End(t)
			if err == nil {
				t.Fatal("two are inside")
			}
			return time.Now().After(end) && serializer.ReasonOf(err) == serializer.ReasonStorage && strings.Contains(err.Error(), where.Found)
		})
		holder.WantHeld(t)
		holder.Turn.Leave()
		back()
		link.Cut()
		EnterSoon(t, moved)
	})
}

// Tickets can be evicted from another process while their owner is cut off: the owner obeys as soon as it is
// back. Bug: nobody noticed that it did not answer. The conformance suite evicts tickets whose owner is there.
func (p Promises[S]) evicted(t *testing.T) {
	// A busy machine loses no lease before the owner is back. Of Redis that has just been
	// started, the first process waits for the end of a lease.
	s, ttl := p.Start(t), wait.Patience/3
	link := testrelay.Start(t, s.Address())
	owner, other := p.engine(t, link.Addr, ttl), p.engine(t, s.Address(), ttl)
	holder, waiter, last := Enter(t, owner), Join(t, owner), Join(t, other)
	queues, err := other.Queues(t.Context())
	Must(t, err)
	link.Part(true)
	for _, ticket := range queues[0].Tickets[:2] {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		token, err := strconv.ParseUint(ticket.Token, 10, 64)
		Must(t, err)
		if err := other.Evict(ctx, Queue, token); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("evicting returned %v", err)
		}
	}
	link.Cut()
	link.Part(false)
	_ = holder.WantRevoked(t, serializer.ErrEvicted)
	if err := waiter.End(t); serializer.ReasonOf(err) != serializer.ReasonEvicted {
		t.Errorf("the waiter ends with %v", err)
	}
	holder.Turn.Leave()
	last.Wait(t).Leave()
	waitUntilEmpty(t, s)
}

// holderVariable in the environment makes a program that calls [Main] a process that is inside: the
// address of the server, and the time to live.
const holderVariable = "ORDERLY_TEST_HOLDER"

// Open opens the store of a process, whose server or link has an address.
type Open func(address string, ttl time.Duration) (serializer.Store, error)

// Main runs a package's tests, or a process that is inside, and exits.
func Main(m *testing.M, open Open) {
	if address, ttl, asked := strings.Cut(os.Getenv(holderVariable), " "); asked {
		beInside(open, address, ttl)
	}
	wait.InParallel()
	os.Exit(m.Run())
}

// beInside is inside, and says when its turn is revoked.
func beInside(open Open, address, text string) {
	ttl, _ := time.ParseDuration(text) // written below
	store, err := open(address, ttl)
	if err != nil {
		panic(err)
	}
	a, revoked := Arrival(Queue, 0), make(chan error, 1)
	a.Revoke = func(err error) { revoked <- err }
	_, err = serializer.New(store, serializer.Options{}).Enter(context.Background(), a)
	fmt.Println("inside", err)
	fmt.Println("revoked", <-revoked)
	select {}
}

// startHolder starts a process, and waits until it is inside.
func startHolder(t *testing.T, address string, ttl time.Duration) *testprocess.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+address+" "+ttl.String())
	holder := testprocess.Start(t, cmd)
	holder.AwaitText("inside <nil>")
	return holder
}
