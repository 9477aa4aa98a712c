//go:build !race

package serialize

import (
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// What response_buffer adds to the allocations of a request: nothing for a small
// response, and little for one that the sender writes.
func TestAllocationsOfAResponse(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		most float64
	}{
		{"small", 100, 0},
		{"large", 100 << 10, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := make([]byte, c.size)
			respond := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				_, err := w.Write(page)
				return err
			})
			var of [2]float64
			for i, buffer := range []Size{0, defaultResponseBuffer} {
				ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
				defer cancel()
				s := &Handler{Path: t.TempDir(), EngineRaw: []byte(`{"engine": "memory"}`), ResponseBuffer: &buffer}
				if err := s.Provision(ctx); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Cleanup() }()
				s.logger = zap.NewNop() // otherwise every request is logged
				of[i] = allocations(t, func(w http.ResponseWriter, r *http.Request) error {
					return s.ServeHTTP(forgetful{w}, r, respond)
				})
			}
			t.Logf("%.1f without response_buffer, %.1f with it", of[0], of[1])
			if more := of[1] - of[0]; more > c.most {
				t.Errorf("response_buffer allocates %.1f times more, expected at most %.0f", more, c.most)
			}
		})
	}
}

// forgetful takes a response and discards its body.
type forgetful struct{ http.ResponseWriter }

func (forgetful) Write(p []byte) (int, error) { return len(p), nil }
