//go:build !race

package serialize

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"unsafe"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
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
