package test

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

var historyTime = flag.Duration("for", 0, "how long TestHistories goes on; at least a round")

// register is what the queue protects: it keeps one value, and refuses writes
// with a smaller token than it has seen.
type register struct {
	mu              sync.Mutex
	value, greatest uint64
}

func (r *register) read() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

func (r *register) write(token uint64) (accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.greatest {
		return false
	}
	r.value, r.greatest = token, token
	return true
}

// step is an operation of a history: on the lock or on the register.
type step struct {
	kind  stepKind
	token uint64
}

type stepKind int

const (
	stepEnter stepKind = iota
	stepRead           // its output is the value
	stepWrite          // its output is whether it was accepted
	stepLeave
)

// guarded is the state of the model.
type guarded struct{ holder, greatest, value uint64 }

// guardedModel is a register behind a lock that one client holds at a time,
// with growing tokens. Under the lock, a client reads what its predecessor has
// written, and no write is refused.
var guardedModel = porcupine.Model{
	Init: func() any { return guarded{} },
	Step: func(state, input, output any) (bool, any) {
		g, s := state.(guarded), input.(step)
		switch s.kind {
		case stepEnter:
			return g.holder == 0 && s.token > g.greatest, guarded{s.token, s.token, g.value}
		case stepRead:
			return g.holder == s.token && output == g.value, g
		case stepWrite:
			return g.holder == s.token && output == true, guarded{g.holder, g.greatest, s.token}
		default:
			return g.holder == s.token, guarded{0, g.greatest, g.value}
		}
	},
}

// history is what clients have seen, on one clock.
type history struct {
	start time.Time
	mu    sync.Mutex
	list  []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) add(client int, s step, output any, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, porcupine.Operation{ClientId: client, Input: s, Output: output, Call: call, Return: end})
}

// visit is a turn: it reads, writes, and leaves. Once it is revoked, it does
// nothing more.
func (h *history) visit(e *engine, r *register, client int, refused *atomic.Int64) {
	var ended atomic.Int64 // when it was revoked
	a := arrival("register")
	a.Timeout = 30 * time.Second
	a.Revoke = func(error) { ended.CompareAndSwap(0, h.now()) }
	call := h.now()
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		refused.Add(1)
		time.Sleep(50 * time.Millisecond)
		return
	}
	token := turn.Token()
	h.add(client, step{stepEnter, token}, nil, call, h.now())
	if ended.Load() == 0 {
		call = h.now()
		value := r.read()
		h.add(client, step{stepRead, token}, value, call, h.now())
	}
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	if ended.Load() == 0 {
		call = h.now()
		accepted := r.write(token)
		h.add(client, step{stepWrite, token}, accepted, call, h.now())
	}
	ended.CompareAndSwap(0, h.now())
	// The turn may end at any time after that.
	h.add(client, step{stepLeave, token}, nil, ended.Load(), math.MaxInt64)
	turn.Leave()
}

// besieged is a cluster with three processes, and links that can be parted.
type besieged struct {
	t       *testing.T
	trio    *trio
	boss    *operator
	links   [3][]*relay // of each process
	engines []*engine

	endedLeases bool // etcd has, when a frozen member woke up in this round
}

const besiegedTTL = 5 * time.Second

func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{t: t, trio: startDebianTrio(t, "--auth-token-ttl", "2", "--bcrypt-cost", "4")}
	b.boss = demandLogin(t, b.trio.endpoints...)
	for i := range b.links {
		var endpoints []string
		for _, to := range b.trio.endpoints {
			link := startRelay(t, to)
			b.links[i] = append(b.links[i], link)
			endpoints = append(endpoints, link.url())
		}
		b.engines = append(b.engines, open(t, etcd.Options{
			Username: "orderly", Password: "secret", TTL: besiegedTTL,
		}, endpoints...))
	}
	return b
}

// faults are what happens to the cluster, each for a while.
func (b *besieged) faults() map[string]func(pause func(time.Duration)) {
	someone := func() *process { return b.trio.members[rand.IntN(3)] }
	part := func(parted bool, links []*relay) {
		for _, link := range links {
			link.part(parted)
		}
	}
	return map[string]func(pause func(time.Duration)){
		"a member killed": func(pause func(time.Duration)) {
			m := someone()
			m.kill()
			pause(3 * time.Second)
			m.start(b.t)
		},
		"a member frozen": func(pause func(time.Duration)) {
			m := someone()
			m.signal(b.t, syscall.SIGSTOP)
			pause(besiegedTTL + time.Second)
			before := leasesLost(b.engines)
			m.signal(b.t, syscall.SIGCONT)
			b.endedLeases = b.endedLeases || wait.Poll(besiegedTTL/2, func() bool { return leasesLost(b.engines) > before })
		},
		"a process cut off": func(pause func(time.Duration)) {
			links := b.links[rand.IntN(3)]
			part(true, links)
			pause(besiegedTTL + time.Second)
			part(false, links)
		},
		"a process cut off from one member": func(pause func(time.Duration)) {
			links := b.links[rand.IntN(3)][:1]
			part(true, links)
			pause(2 * time.Second)
			part(false, links)
		},
		"connections broken": func(pause func(time.Duration)) {
			for range 5 {
				for _, links := range b.links {
					for _, link := range links {
						link.cut()
					}
				}
				pause(200 * time.Millisecond)
			}
		},
		"history compacted": func(func(time.Duration)) {
			b.boss.do(func(ctx context.Context, c *clientv3.Client) error {
				answer, err := c.Get(ctx, "x")
				if err != nil {
					return err
				}
				return second(c.Compact(ctx, answer.Header.Revision))
			})
		},
		"tokens ended": func(pause func(time.Duration)) {
			b.boss.do(password("other"))
			pause(500 * time.Millisecond)
			b.boss.do(password("secret"))
		},
	}
}

// TestHistories has clients of three processes take turns at a register.
// Meanwhile, members are killed and frozen, links are parted and broken,
// history is compacted, and tokens expire. The test checks
// whether a lock with growing tokens explains what the clients have seen. No
// process is stopped here, so two must never have been inside at once;
// TestFaults stops processes, too. The exception is an old leader of etcd 3.4
// that wakes up and ends leases.
func TestHistories(t *testing.T) {
	b := besiege(t)
	r := new(register)
	total, refused, stalled, ended, seen := 0, new(atomic.Int64), 0, 0, make(map[string]int)
	for start := time.Now(); ; {
		h := &history{start: time.Now()}
		stall := b.round(h, r, refused, seen)
		total += len(h.list) / 4
		if stall > besiegedTTL/10 {
			// The machine kept this process from running for longer than the
			// margin: then two may be inside, as the documentation says.
			stalled++
		} else if result := porcupine.CheckOperationsTimeout(withState(h), h.list, 2*time.Minute); result != porcupine.Ok {
			if !b.endedLeases {
				t.Fatalf("porcupine: a history of %d operations is %s", len(h.list), result)
			}
			ended++
		}
		if time.Since(start) >= *historyTime {
			break
		}
	}
	t.Logf("%d turns, %d refused, faults %v; %d rounds not judged, because this process did not run for %s; %d rounds with two inside, after etcd had ended leases",
		total, refused.Load(), seen, stalled, besiegedTTL/10, ended)
	if total < 50 {
		t.Errorf("only %d turns: the test shows nothing", total)
	}
}

// withState returns the model, which begins with the state that earlier rounds
// have left.
func withState(h *history) porcupine.Model {
	m := guardedModel
	first := guarded{}
	least := uint64(math.MaxUint64)
	for _, o := range h.list {
		if s := o.Input.(step); s.kind == stepRead && s.token < least {
			least, first.value = s.token, o.Output.(uint64)
		}
	}
	first.greatest = first.value
	m.Init = func() any { return first }
	return m
}

// round runs the clients for some time with faults, and returns the longest
// time for which this process did not run.
func (b *besieged) round(h *history, r *register, refused *atomic.Int64, seen map[string]int) (stall time.Duration) {
	b.endedLeases = false
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { stall = longestStall(stop) })
	for i, e := range b.engines {
		for j := range 2 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						h.visit(e, r, 2*i+j, refused)
					}
				}
			})
		}
	}
	for name, fault := range b.faults() {
		seen[name]++
		fault(time.Sleep)
		time.Sleep(500 * time.Millisecond)
	}
	close(stop)
	group.Wait()
	return stall
}

// longestStall watches for times in which nothing here runs.
func longestStall(stop <-chan struct{}) (stall time.Duration) {
	const tick = 10 * time.Millisecond
	for {
		before := time.Now()
		select {
		case <-stop:
			return stall
		case <-time.After(tick):
			stall = max(stall, time.Since(before)-tick)
		}
	}
}

// The model must detect what it is meant to detect.
func TestGuardedModel(t *testing.T) {
	t.Parallel()
	enter := func(token uint64, at int64) porcupine.Operation {
		return porcupine.Operation{Input: step{stepEnter, token}, Call: at, Return: at}
	}
	read := func(token, value uint64, at int64) porcupine.Operation {
		return porcupine.Operation{Input: step{stepRead, token}, Output: value, Call: at, Return: at}
	}
	write := func(token uint64, accepted bool, at int64) porcupine.Operation {
		return porcupine.Operation{Input: step{stepWrite, token}, Output: accepted, Call: at, Return: at}
	}
	leave := func(token uint64, at int64) porcupine.Operation {
		return porcupine.Operation{Input: step{stepLeave, token}, Call: at, Return: math.MaxInt64}
	}
	for name, test := range map[string]struct {
		history []porcupine.Operation
		ok      bool
	}{
		"two turns":       {[]porcupine.Operation{enter(1, 1), write(1, true, 2), leave(1, 3), enter(2, 4), read(2, 1, 5)}, true},
		"overlap":         {[]porcupine.Operation{enter(1, 1), enter(2, 2), leave(1, 3)}, false},
		"inversion":       {[]porcupine.Operation{enter(2, 1), leave(2, 2), enter(1, 3)}, false},
		"old value":       {[]porcupine.Operation{enter(1, 1), write(1, true, 2), leave(1, 3), enter(2, 4), read(2, 0, 5)}, false},
		"refused write":   {[]porcupine.Operation{enter(1, 1), write(1, false, 2)}, false},
		"write after all": {[]porcupine.Operation{enter(1, 1), leave(1, 2), enter(2, 3), write(1, true, 4)}, false},
	} {
		for i := range test.history {
			test.history[i].ClientId = i
		}
		if ok := porcupine.CheckOperations(guardedModel, test.history); ok != test.ok {
			t.Errorf("%s: %t, want %t", name, ok, test.ok)
		}
	}
}
