package serialize

import (
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// provision sets a handler up until the end of the test.
func provision(t *testing.T, s *Handler) error {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	t.Cleanup(func() { _ = s.Cleanup() })
	return s.Provision(ctx)
}

// opened opens an engine as a handler does, until the end of the test.
func opened(t *testing.T, module engines.Module, path string) *engines.Ref {
	t.Helper()
	e, err := engines.Open(module, path, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(e.Release)
	return e
}

func entered(t *testing.T, e *engines.Ref, queue string) serializer.Turn {
	t.Helper()
	turn, err := e.Enter(t.Context(), serializer.Arrival{Queue: queue, Timeout: time.Minute})
	must(t, err)
	return turn
}

// evictLast evicts the last ticket of a handler's queue.
func evictLast(t *testing.T, s *Handler) {
	t.Helper()
	tickets := s.engine.Known(s.prefix.CanBe)[0].Tickets
	token, err := strconv.ParseUint(tickets[len(tickets)-1].Token, 10, 64)
	must(t, errors.Join(err, s.engine.Evict(t.Context(), s.Prefix, token)))
}
