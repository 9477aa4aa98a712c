//go:build !race

package serialize

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// The bounds are a little above what is needed, so that a new allocation is
// seen.
func TestAllocationsOfARequest(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine string
		most   float64
	}{
		{"memory", `{"engine": "memory"}`, 10},
		{"file", `{"engine": "file"}`, 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
			defer cancel()
			s := &Handler{Path: t.TempDir(), Prefix: "cost_" + c.name + "_", EngineRaw: []byte(c.engine)}
			if err := s.Provision(ctx); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Cleanup() }()
			s.logger = zap.NewNop() // else every request is logged
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

// allocations is how often a request allocates, with what it takes to make one.
func allocations(t *testing.T, serve func(http.ResponseWriter, *http.Request) error) float64 {
	t.Helper()
	w, server := httptest.NewRecorder(), new(caddyhttp.Server)
	return testing.AllocsPerRun(500, func() {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)
		if err := serve(w, r); err != nil {
			t.Error(err)
		}
	})
}
