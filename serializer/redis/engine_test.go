package redis

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

const ttl = 3 * time.Second

func openStore(t testing.TB, o Options, addresses ...string) *Store {
	t.Helper()
	o.Addresses = addresses
	if o.TTL == 0 {
		o.TTL = ttl
	}
	if os.Getenv("REDIS_TEST_LOG") != "" {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	st, err := Open(o)
	testlease.Must(t, err)
	return st
}

// open makes an engine, as a process does.
func open(t testing.TB, o Options, addresses ...string) *testlease.Engine {
	t.Helper()
	return testlease.NewEngine(t, openStore(t, o, addresses...))
}

// opened makes engines that let arrivals in: the namespace is not new any more.
func opened(t testing.TB, n int, addresses ...string) (engines []*testlease.Engine) {
	t.Helper()
	for range n {
		engines = append(engines, open(t, Options{}, addresses...))
	}
	for _, e := range engines {
		testlease.EnterSoon(t, e)
	}
	return engines
}
