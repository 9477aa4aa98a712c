package redis

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var historyTime = flag.Duration("for", 0, "how long TestHistories goes on; at least a round")

// history is who was inside from when to when, as the upstream sees it.
type history struct {
	start time.Time

	mu      sync.Mutex
	holds   []*turn
	refused int
}

// turn is one visit. It ends when the caller leaves, or when its turn is revoked.
type turn struct {
	client            int
	token             uint64
	asked, came, went time.Duration
}

func (h *history) note(what func(now time.Duration)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what(time.Since(h.start))
}

// visit takes a turn in a queue.
func (h *history) visit(e *serializer.Engine, queue string, client int) {
	v := &turn{client: client, asked: time.Since(h.start), went: math.MaxInt64}
	end := func() { h.note(func(now time.Duration) { v.went = min(v.went, now) }) }
	got, err := e.Enter(context.Background(), serializer.Arrival{Queue: queue, Timeout: 30 * time.Second, Revoke: func(error) { end() }})
	if err != nil {
		h.note(func(time.Duration) { h.refused++ })
		time.Sleep(50 * time.Millisecond)
		return
	}
	h.note(func(now time.Duration) {
		v.token, v.came = got.Token(), now
		h.holds = append(h.holds, v)
	})
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	end()
	got.Leave()
}

// step is an entry or a leaving.
type step struct {
	leaves bool
	token  uint64
}

// lock is the state of the model: who holds the queue, and the greatest token so far.
type lock struct{ holder, greatest uint64 }

// lockModel is a lock that is taken by one at a time, in the order of tokens.
var lockModel = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, s := state.(lock), input.(step)
		if s.leaves {
			return l.holder == s.token, lock{0, l.greatest}
		}
		return l.holder == 0 && s.token > l.greatest, lock{s.token, s.token}
	},
}

// judge looks for an order of all entries and leavings in which at most one holds the lock.
func (h *history) judge() porcupine.CheckResult {
	var operations []porcupine.Operation
	for i, v := range h.holds {
		operations = append(operations,
			porcupine.Operation{ClientId: v.client, Input: step{false, v.token}, Call: int64(v.asked), Return: int64(v.came)},
			porcupine.Operation{ClientId: len(h.holds) + i, Input: step{true, v.token}, Call: int64(v.went), Return: math.MaxInt64})
	}
	return porcupine.CheckOperationsTimeout(lockModel, operations, time.Minute)
}

// The harness must detect what it is meant to detect.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		holds []*turn
		ok    bool
	}{
		"one after the other": {[]*turn{{0, 1, 0, 1, 2}, {1, 2, 0, 3, 4}}, true},
		"overlap":             {[]*turn{{0, 1, 0, 1, 4}, {1, 2, 0, 3, 5}}, false},
		"inversion":           {[]*turn{{0, 2, 0, 1, 2}, {1, 1, 0, 3, 4}}, false},
	} {
		h := history{holds: test.holds}
		if result := h.judge(); (result == porcupine.Ok) != test.ok {
			t.Errorf("%s: %s", name, result)
		}
	}
}

// faults are what happens to a server that saves everything, and to the links to it.
func faults(t *testing.T, s, other *server, links []*relay) map[string]func() {
	data := filepath.Join(s.dir, "appendonlydir")
	return map[string]func(){
		"server restarted": func() {
			s.kill()
			time.Sleep(time.Duration(rand.IntN(int(2 * ttl))))
			s.start()
		},
		"server restarted without data": func() {
			s.kill()
			must(t, os.RemoveAll(data))
			s.start()
		},
		"server replaced by one that lacks the last second": func() {
			older := filepath.Join(t.TempDir(), "data")
			must(t, os.CopyFS(older, os.DirFS(data)))
			time.Sleep(time.Second)
			s.kill()
			must(t, os.RemoveAll(data))
			must(t, os.CopyFS(data, os.DirFS(older)))
			s.start()
		},
		"server was a replica of one that lacks the last second": func() {
			older := startServer(t)
			defer older.kill()
			follow(t, older, s)
			older.do("REPLICAOF", "NO", "ONE")
			time.Sleep(time.Second)
			follow(t, s, older)
			s.do("REPLICAOF", "NO", "ONE")
		},
		"server refuses writes": func() {
			s.do("CONFIG", "SET", "min-replicas-to-write", "1")
			time.Sleep(time.Duration(rand.IntN(int(2 * ttl))))
			s.do("CONFIG", "SET", "min-replicas-to-write", "0")
		},
		"server frozen": func() {
			s.signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rand.IntN(int(2 * ttl))))
			s.signal(syscall.SIGCONT)
		},
		"a process cut off": func() {
			link := links[rand.IntN(len(links))]
			link.part(true)
			time.Sleep(ttl + time.Second)
			link.part(false)
		},
		"a process led to an empty server": func() {
			link := links[rand.IntN(len(links))]
			link.lead(other.address)
			time.Sleep(2*ttl + time.Second)
			link.lead(s.address)
		},
		"connections broken": func() {
			for range 5 {
				for _, link := range links {
					link.cut()
				}
				time.Sleep(200 * time.Millisecond)
			}
		},
		"answers lost while callers leave": func() {
			for range 10 {
				for _, link := range links {
					link.part(true)
				}
				time.Sleep(time.Duration(rand.IntN(int(2 * pollInterval))))
				for _, link := range links {
					link.cut()
					link.part(false)
				}
				time.Sleep(time.Duration(rand.IntN(int(pollInterval))))
			}
		},
		"server's clock set": func() {
			s.do("HINCRBY", "{orderly}:meta", "time", -int64(time.Hour/time.Microsecond))
		},
	}
}

// TestHistories has clients of three processes take turns, under faults. It checks whether a
// lock with growing tokens explains what they have seen. No process is stopped here, so two
// must never have been inside at once.
func TestHistories(t *testing.T) {
	t.Parallel()
	s, other := startServer(t, "--appendonly", "yes", "--appendfsync", "always"), startServer(t)
	var links []*relay
	var engines []*serializer.Engine
	for range 3 {
		link := startRelay(t, s.address)
		links = append(links, link)
		engines = append(engines, open(t, Options{}, link.Addr))
	}
	rounds, total, refused, stalled, seen := 0, 0, 0, 0, make(map[string]int)
	for start := time.Now(); rounds == 0 || time.Since(start) < *historyTime; rounds++ {
		h := &history{start: time.Now()}
		stall := h.round(engines, faults(t, s, other, links), seen, func() { awaitTurnover(t, s) })
		total, refused = total+len(h.holds), refused+h.refused
		if stall > 300*time.Millisecond {
			stalled++ // the machine kept this process from running for about the margin of a lease
		} else if result := h.judge(); result != porcupine.Ok {
			t.Fatalf("porcupine: a history of %d turns is %s", len(h.holds), result)
		}
	}
	t.Logf("%d turns in %d rounds, %d refused, faults %v; %d rounds not judged, because this process did not run for a while", total, rounds, refused, seen, stalled)
	if total < 50 {
		t.Errorf("only %d turns: the test shows nothing", total)
	}
}

// awaitTurnover waits until no ticket is left of those that exist now. Nobody stays inside.
func awaitTurnover(t *testing.T, s *server) {
	t.Helper()
	tickets := s.do("HKEYS", "{orderly}:tickets").([]any)
	wait.Until(t, "no earlier ticket is left", func() bool {
		return !slices.ContainsFunc(tickets, func(ticket any) bool { return s.do("HEXISTS", "{orderly}:tickets", ticket) == int64(1) })
	})
}

// round runs the clients while each fault happens once, and calls a function after each. It
// returns the longest time for which this process did not run.
func (h *history) round(engines []*serializer.Engine, faults map[string]func(), seen map[string]int, healed func()) (stall time.Duration) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		const tick = 10 * time.Millisecond
		for {
			before := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(tick):
				stall = max(stall, time.Since(before)-tick)
			}
		}
	})
	clients := func(h *history, e *serializer.Engine, queue string, numbers ...int) {
		for _, client := range numbers {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						h.visit(e, queue, client)
					}
				}
			})
		}
	}
	for i, e := range engines {
		clients(h, e, "a_", 2*i, 2*i+1)
		// Turns here pass on and end also while the process gets no answers.
		clients(&history{start: h.start}, e, fmt.Sprintf("b%d_", i), 0, 1, 2)
	}
	for name, fault := range faults {
		seen[name]++
		fault()
		time.Sleep(ttl + time.Duration(rand.IntN(int(ttl))))
		healed()
	}
	close(stop)
	group.Wait()
	return stall
}
