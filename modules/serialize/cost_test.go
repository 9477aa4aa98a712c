//go:build !race

package serialize

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The bounds are a little above what is needed, so that a new allocation is
// seen.
//
// Bug: Caddy's default timeouts, which begin with each read or write, were stopped and
// restarted for each request, by four calls on its connection.
func TestAllocationsOfARequest(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine string
		most   float64
	}{
		{"memory", `{"engine": "memory"}`, 8},
		{"file", `{"engine": "file"}`, 14},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Handler{Path: t.TempDir(), Prefix: "cost_" + c.name + "_", EngineRaw: []byte(c.engine)}
			must(t, provision(t, s))
			s.report.Logger = zap.NewNop() // otherwise every request is logged
			served := 0
			respond := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { served++; return nil })
			free := allocations(t, respond.ServeHTTP)
			served = 0
			behind := allocations(t, func(w http.ResponseWriter, r *http.Request) error { return s.ServeHTTP(w, r, respond) })
			if served == 0 {
				t.Fatal("no request was served")
			}
			t.Logf("%.1f more than without a queue", behind-free)
			if behind-free > c.most {
				t.Errorf("a request allocates %.1f times more than without a queue; expected at most %.0f", behind-free, c.most)
			}
		})
	}
}

// allocations returns how often a request allocates, including what it takes to
// make one.
func allocations(t *testing.T, serve func(http.ResponseWriter, *http.Request) error) float64 {
	t.Helper()
	w, server := httptest.NewRecorder(), new(caddyhttp.Server)
	return testing.AllocsPerRun(500, func() {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)
		r = r.WithContext(caddyhttp.ContextWithIdleTimeouts(r.Context(), new(caddyhttp.IdleTimeoutReader), new(caddyhttp.IdleTimeoutWriter)))
		if err := serve(w, r); err != nil {
			t.Error(err)
		}
	})
}

// Bug: each function on the way to the engine had a copy of the arrival. So the stack of
// a request that waits outgrew 8 KiB, of which Caddy and net/http take most, and got 16.
// The bound is a little above what is needed.
func TestStackOfOneWhoWaits(t *testing.T) {
	const most = 1000
	for _, engine := range []string{"memory", "file"} {
		s := &Handler{Path: t.TempDir(), Prefix: "stack_", EngineRaw: []byte(`{"engine": "` + engine + `"}`)}
		must(t, provision(t, s))
		turn := entered(t, s.engine, s.prefix.Names)
		next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
		request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		request = caddyhttp.PrepareRequest(request, caddy.NewReplacer(), httptest.NewRecorder(), new(caddyhttp.Server))
		probe := &stackProbe{Context: request.Context(), over: make(chan struct{})}
		close(probe.over)
		request = request.WithContext(probe)
		served := make(chan error)
		go func() {
			growStack(1 << 10)
			probe.top = stackPointer()
			served <- s.ServeHTTP(httptest.NewRecorder(), request, next)
		}()
		err := <-served
		turn.Leave()
		if err == nil {
			t.Fatalf("%s: a request whose client is gone was served", engine)
		}
		t.Logf("%s: a request that waits takes %d bytes of the stack", engine, probe.depth)
		if probe.depth == 0 || probe.depth > most {
			t.Errorf("%s: a request that waits takes %d bytes of the stack, more than %d", engine, probe.depth, most)
		}
	}
}

// stackProbe is the context of a client that is gone. It notes how deep the stack is where
// the request waits.
type stackProbe struct {
	context.Context
	over  chan struct{}
	top   uintptr
	depth uintptr
}

func (p *stackProbe) Done() <-chan struct{} {
	p.depth = max(p.depth, p.top-stackPointer())
	return p.over
}

func (p *stackProbe) Err() error { return context.Canceled }

//go:noinline
func stackPointer() uintptr {
	var here byte
	return uintptr(unsafe.Pointer(&here))
}

// growStack makes the stack so large that it need not be moved later.
//
//go:noinline
func growStack(n int) byte {
	var room [256]byte
	if n > 0 {
		room[n%len(room)] = growStack(n - 1)
	}
	return room[n%7]
}

// Neither a place nor a visit takes a goroutine or more than 2 KB, and a visit that has ended takes nothing. Bug: a
// place took 5.6 KB, and with a path of 15 KB, 34 KB.
// Bug: on a busy machine, the first ones were refused after a minute, the default timeout.
func TestPlacesAndVisitsAreSmall(t *testing.T) {
	const browsers = 150
	var many sync.WaitGroup
	gate := make(chan struct{})
	for range 10 * browsers { // of goroutines, the runtime keeps something for later ones
		many.Go(func() { <-gate })
	}
	close(gate)
	many.Wait()
	for name, visit := range map[string]*Visit{"place": nil, "visit": {Idle: caddy.Duration(time.Hour)}} {
		s, word := newShop(t, places(4*browsers), func(h *Handler) {
			h.Visit, h.WaitingPage.Hold = visit, new(caddy.Duration(time.Hour)) // however busy the machine is
		}), "200"
		path := "/"
		if visit == nil {
			s.pause()
			word, path = "page", "/"+strings.Repeat("p", 15<<10)
		}
		var before, goroutines int
		each := func() int { return (memoryInUse() - before) / browsers }
		for range 2 { // the first ones make what is made once
			before, goroutines = memoryInUse(), runtime.NumGoroutine()
			for range browsers {
				b := s.newBrowser()
				for range 2 { // which proves its cookie
					b.opens(path).want(word)
				}
			}
			clear(s.turns) // which are the test's own
		}
		if !wait.Poll(wait.Patience, func() bool { return runtime.NumGoroutine() < goroutines+browsers/10 }) {
			t.Errorf("%d goroutines; there were %d before", runtime.NumGoroutine(), goroutines)
		}
		size, tickets := each(), len(s.tickets())
		if t.Logf("a %s takes %d bytes", name, size); size > 2<<10 || tickets != 2*browsers {
			t.Errorf("each %s of %d takes %d bytes; expected 2 KB at most", name, tickets, size)
		}
		if s.evict(math.MaxInt); visit != nil {
			wait.Until(t, "a visit that has ended takes nothing", func() bool { return each() <= 0 })
		}
	}
}

// memoryInUse is that of the heap and of stacks.
func memoryInUse() int {
	runtime.GC()
	runtime.GC() // shrinks the stacks that the first has looked at
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
