package serialize

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Bug: a place took a goroutine, and 5.6 KB with it. With a path of 15 KB, it took 34 KB.
func TestWaitingPlacesAreSmall(t *testing.T) {
	const places = 300
	s := busyHandler(t)
	path := "/" + strings.Repeat("p", 15<<10)
	s.giveThePage(t, path, 1) // which makes what is made once
	before := memoryInUse()
	for i := range places {
		s.giveThePage(t, path, i+2)
	}
	size := (memoryInUse() - before) / places
	t.Logf("a place takes %d bytes", size)
	if size > 2<<10 {
		t.Errorf("a place takes %d bytes; expected 2 KB at most", size)
	}
}

// busyHandler is a handler with a waiting page, whose turn is taken.
func busyHandler(t *testing.T) *Handler {
	t.Helper()
	timeout, after, hold := caddy.Duration(2*time.Hour), caddy.Duration(0), caddy.Duration(time.Hour)
	s := &Handler{
		Prefix: t.Name(), Concurrency: 1, Timeout: &timeout, OnDisconnect: onDisconnectFinish,
		WaitingPage: &WaitingPage{After: &after, Hold: &hold}, module: MemoryEngine{},
	}
	s.derive()
	s.Buffer, s.report = new(Size), &telemetry.Reporter{Stats: telemetry.NewStats(s.Prefix)}
	var err error
	if s.engine, err = registered.open(s.module, t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	inside, err := s.engine.Enter(t.Context(), serializer.Arrival{Queue: s.queue})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitingPage.provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.engine.Close()
		inside.Leave()
		s.engine.Release()
	})
	return s
}

// giveThePage gives a browser the page, which it proves. There are so many places then.
func (s *Handler) giveThePage(t *testing.T, path string, places int) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	vars := make(map[string]any)
	ctx := context.WithValue(r.Context(), caddyhttp.VarsCtxKey, vars)
	ctx = context.WithValue(ctx, caddyhttp.OriginalRequestCtxKey, *r)
	r = r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, caddy.NewReplacer()))
	for range 2 {
		w := httptest.NewRecorder()
		if err := s.newVisit(r, vars).serveBrowser(w, r, nil); err != nil || w.Code != http.StatusServiceUnavailable {
			t.Fatalf("answer %d %v; expected the page", w.Code, err)
		}
		if cookies := w.Result().Cookies(); len(cookies) == 1 {
			r.Header.Set("Cookie", cookies[0].Name+"="+cookies[0].Value)
		}
	}
	if _, waiting := s.engine.Count(s.queue); waiting != places {
		t.Fatalf("%d wait; expected %d", waiting, places)
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
