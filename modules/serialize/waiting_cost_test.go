package serialize

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// keepMany keeps the tickets of n browsers in a queue in which no turn comes, and
// returns them.
func keepMany(b testing.TB, module EngineModule, n int) (*Handler, []*keptTicket) {
	b.Helper()
	s, tickets, _ := keepManyBehind(b, module, n)
	return s, tickets
}

// keepManyBehind does what keepMany does, and also returns a function that
// lets the first turn come.
func keepManyBehind(b testing.TB, module EngineModule, n int) (s *Handler, tickets []*keptTicket, leave func()) {
	b.Helper()
	timeout, after, hold := caddy.Duration(2*time.Hour), caddy.Duration(0), caddy.Duration(time.Hour)
	s = &Handler{Prefix: b.Name(), Concurrency: 1, Timeout: &timeout, WaitingPage: &WaitingPage{After: &after, Hold: &hold}, queue: "kept_", module: module}
	s.rule, s.shared = s.engineRules()
	s.meters = newMeters(metrics(), s.Prefix)
	s.meters.openPage(metrics(), s.Prefix)
	b.Cleanup(openStats(s.Prefix, prefixUse{}, s.meters))
	var err error
	if s.engine, err = openEngine(module, b.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
	inside, err := s.engine.Enter(b.Context(), serializer.Arrival{Queue: s.queue})
	if err != nil {
		b.Fatal(err)
	}
	leave = sync.OnceFunc(inside.Leave)
	b.Cleanup(leave)
	tickets = make([]*keptTicket, n)
	for i := range tickets {
		k, changes := s.arriveFrom(b, fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255))
		if !keptTickets.keep(k, changes) {
			b.Fatal("a ticket is not kept")
		}
		keptTickets.find(k.id, k.queue)
		tickets[i] = k
	}
	return s, tickets, leave
}

// arriveFrom takes the ticket of a browser at an address.
func (s *Handler) arriveFrom(t testing.TB, ip string) (k *keptTicket, changes chan struct{}) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/checkout/seats", nil)
	r.Host = "shop.example.com"
	v := &visit{handler: s, queue: s.queue, host: r.Host, clientIP: ip}
	engine, err := s.acquireEngine()
	if err != nil {
		t.Fatal(err)
	}
	k = s.newKeptTicket(r, v, s.waitingQueue(v.queue, false), engine)
	return k, keptTickets.watch(k, k.arrived)
}

// leaveAll ends the tickets, and waits until they have left.
func leaveAll(s *Handler, tickets []*keptTicket) {
	for i := len(tickets) - 1; i >= 0; i-- {
		keptTickets.abandon(tickets[i])
	}
	for s.meters.counts.waiting.Load() > 0 {
		runtime.Gosched()
	}
	s.releaseEngine(s.engine)
}

// BenchmarkWaitingMemory measures what the place of one browser takes. It should be 2 KiB
// at most.
func BenchmarkWaitingMemory(b *testing.B) {
	for name, module := range map[string]EngineModule{"memory": MemoryEngine{}, "file": FileEngine{}} {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					before := memoryInUse()
					s, tickets := keepMany(b, module, n)
					s.awaitTickets(b, n+1)
					heap, stack := memoryInUse()[0]-before[0], memoryInUse()[1]-before[1]
					b.ReportMetric(float64(heap)/float64(n), "heap-B/place")
					b.ReportMetric(float64(stack)/float64(n), "stack-B/place")
					leaveAll(s, tickets)
				}
			})
		}
	}
}

// awaitTickets waits until the queue has so many.
func (s *Handler) awaitTickets(b *testing.B, n int) {
	b.Helper()
	wait.Until(b, "the tickets", func() bool {
		inside, waiting := s.engine.Count(s.queue)
		return inside+waiting == n
	})
}

// Bug: a place took a goroutine, and 5.6 KB with it.
func TestWaitingPlacesAreSmall(t *testing.T) {
	const places = 5000
	before := memoryInUse()
	s, tickets := keepMany(t, MemoryEngine{}, places)
	after := memoryInUse()
	leaveAll(s, tickets)
	if size := (after[0] - before[0] + after[1] - before[1]) / places; size > 2048 {
		t.Errorf("a place takes %d bytes; expected 2 KiB at most", size)
	}
}

func memoryInUse() [2]int64 {
	runtime.GC()
	runtime.GC() // shrinks the stacks that the first has looked at
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return [2]int64{int64(m.HeapAlloc), int64(m.StackInuse)}
}

// BenchmarkWaitingPage measures a browser that comes again and gets the page again.
func BenchmarkWaitingPage(b *testing.B) {
	s, tickets := keepMany(b, MemoryEngine{}, 10_000)
	s.WaitingPage.page = waitingpage.BuiltIn()
	var at int
	for b.Loop() {
		k := tickets[at%len(tickets)]
		at++
		if found, _ := keptTickets.find(k.id, k.queue); found != k {
			b.Fatal("the ticket is not found")
		}
		place := k.shown()
		if err := s.sendPage(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), &visit{handler: s, queue: s.queue}, place, time.Second); err != nil {
			b.Fatal(err)
		}
	}
	leaveAll(s, tickets)
}
