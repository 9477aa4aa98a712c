package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) (stores []serializer.Store) {
		for range n {
			stores = append(stores, openStore(t, Options{Namespace: t.Name(), TTL: 2 * time.Second}, s.address))
		}
		return stores
	})
}

// Bug: databases of one server shared a channel, so the processes of one woke those of others.
// The channel must be one that the documented rights allow.
func TestDatabases(t *testing.T) {
	t.Parallel()
	s := startServer(t, append([]string{"--user", "u", "on", ">secret"}, strings.Fields(keysOf("orderly", 0).rights())...)...)
	var holders []*testlease.Caller
	for _, database := range []int{0, 3} {
		e := open(t, Options{Username: "u", Password: "secret", Database: database}, s.address)
		testlease.EnterSoon(t, e)
		holders = append(holders, testlease.Enter(t, e)) // beside the one of the other database
	}
	for _, h := range holders {
		if h.Turn.Position() != 0 || len(h.Revoked) > 0 {
			t.Errorf("%d ahead, revoked %d times", h.Turn.Position(), len(h.Revoked))
		}
	}
	if channels := s.do("PUBSUB", "CHANNELS"); len(channels.([]any)) != 2 {
		t.Errorf("channels %v; expected one for each database", channels)
	}
}
