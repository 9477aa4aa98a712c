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
	s.giveThePage(t, path) // which makes what is made once
	before := memoryInUse()
	for range places {
		s.giveThePage(t, path)
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
		s.engine.release()
	})
	return s
}

// giveThePage gives a browser the page, which it proves.
func (s *Handler) giveThePage(t *testing.T, path string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	vars := make(map[string]any)
	ctx := context.WithValue(r.Context(), caddyhttp.VarsCtxKey, vars)
	ctx = context.WithValue(ctx, caddyhttp.OriginalRequestCtxKey, *r)
	r = r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, caddy.NewReplacer()))
	w := httptest.NewRecorder()
	v := s.newVisit(r, vars)
	if err := v.serveNavigation(w, r, nil); err != nil || w.Code != http.StatusServiceUnavailable {
		t.Fatalf("answer %d %v; expected the page", w.Code, err)
	}
	r.AddCookie(w.Result().Cookies()[0])
	if ticket, _ := places().Find(r, v.placeQueue()); ticket == nil {
		t.Fatal("the cookie finds no ticket")
	}
	w = httptest.NewRecorder()
	if err := s.newVisit(r, vars).serveNavigation(w, r, nil); err != nil || w.Code != http.StatusServiceUnavailable {
		t.Fatalf("answer %d %v; expected the page again", w.Code, err)
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
