package serialize

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// keepMany keeps the tickets of n browsers in a queue where nobody's turn comes, and
// returns them.
func keepMany(b *testing.B, module EngineModule, n int) (*Handler, []*keptTicket) {
	b.Helper()
	timeout, after, hold := caddy.Duration(2*time.Hour), caddy.Duration(0), caddy.Duration(time.Hour)
	s := &Handler{Prefix: b.Name(), Concurrency: 1, Timeout: &timeout, WaitingPage: &WaitingPage{After: &after, Hold: &hold}, queue: "kept_", module: module}
	s.rule, s.shared = rules(1, false)
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
	b.Cleanup(inside.Leave)
	tickets := make([]*keptTicket, n)
	for i := range tickets {
		r := httptest.NewRequest(http.MethodGet, "/checkout/seats", nil)
		r.Host = "shop.example.com"
		v := &visit{handler: s, queue: s.queue, host: r.Host, clientIP: fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255)}
		engine, err := s.acquireEngine()
		if err != nil {
			b.Fatal(err)
		}
		k := s.newKeptTicket(r, v, s.waitingQueue(v.queue, false), engine)
		changes := keptTickets.watch(k)
		if !keptTickets.keep(k, changes) {
			b.Fatal("a ticket is not kept")
		}
		keptTickets.find(k.id, k.queue)
		tickets[i] = k
	}
	return s, tickets
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

// BenchmarkWaitingMemory measures what the place of one browser takes.
func BenchmarkWaitingMemory(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				before := memoryInUse()
				s, tickets := keepMany(b, MemoryEngine{}, n)
				heap, stack := memoryInUse()[0]-before[0], memoryInUse()[1]-before[1]
				b.ReportMetric(float64(heap)/float64(n), "heap-B/place")
				b.ReportMetric(float64(stack)/float64(n), "stack-B/place")
				leaveAll(s, tickets)
			}
		})
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
	s.WaitingPage.page = builtInWaiting()
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
