package redis

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

const ttl = 3 * time.Second

func openStore(t testing.TB, o Options, addresses ...string) *Store {
	t.Helper()
	o.Addresses = addresses
	if o.TTL == 0 {
		o.TTL = ttl
	}
	st, err := Open(o)
	testlease.Must(t, err)
	return st
}

// open makes an engine, as a process does.
func open(t testing.TB, o Options, addresses ...string) *serializer.Engine {
	t.Helper()
	return testlease.NewEngine(t, openStore(t, o, addresses...))
}

// openAtOnce makes an engine, and has the server let arrivals in, rather than wait for its time to live.
func openAtOnce(t testing.TB, s *server, o Options, addresses ...string) *serializer.Engine {
	t.Helper()
	e := open(t, o, addresses...)
	testlease.Must(t, queues(e))
	s.do("HSET", "{orderly}:meta", "closed", 0)
	return e
}

// opened makes engines that let arrivals in: the namespace is not new any more.
func opened(t testing.TB, n int, addresses ...string) (engines []*serializer.Engine) {
	t.Helper()
	for range n {
		engines = append(engines, open(t, Options{}, addresses...))
	}
	for _, e := range engines {
		testlease.EnterSoon(t, e)
	}
	return engines
}
