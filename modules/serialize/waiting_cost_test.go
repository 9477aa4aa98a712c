package serialize

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Bug: a place took a goroutine, and 5.6 KB with it. With a path of 15 KB, it took 34 KB.
// Bug: on a busy machine, the first ones were refused after a minute, the default timeout.
func TestWaitingPlacesAreSmall(t *testing.T) {
	const places = 300
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	page := &WaitingPage{After: new(caddy.Duration), Hold: new(caddy.Duration(time.Hour))} // however busy the machine is
	s := &Handler{Path: t.TempDir(), Prefix: t.Name(), EngineRaw: []byte(`{"engine": "memory"}`), Timeout: new(caddy.Duration), WaitingPage: page}
	if err := s.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Cleanup() }()
	inside, err := s.engine.Enter(ctx, serializer.Arrival{Queue: s.prefix.Names})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Leave()
	s.giveThePage(t) // which makes what is made once
	before := memoryInUse()
	for range places {
		s.giveThePage(t)
	}
	size := (memoryInUse() - before) / places
	t.Logf("a place takes %d bytes", size)
	if size > 2<<10 {
		t.Errorf("a place takes %d bytes; expected 2 KB at most", size)
	}
	if _, waiting := s.engine.Count(s.prefix.Names); waiting != places+1 {
		t.Errorf("%d wait; expected %d", waiting, places+1)
	}
}

// giveThePage gives a browser the page, which it proves.
func (s *Handler) giveThePage(t *testing.T) {
	t.Helper()
	var cookies []*http.Cookie
	for range 2 {
		r, w := httptest.NewRequest(http.MethodGet, "/"+strings.Repeat("p", 15<<10), nil), httptest.NewRecorder()
		r.Header.Set("Accept", "text/html")
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
		if err := s.ServeHTTP(w, r, nil); err != nil || w.Code != http.StatusServiceUnavailable {
			t.Fatalf("answer %d %v; expected the page", w.Code, err)
		}
		cookies = w.Result().Cookies()
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
