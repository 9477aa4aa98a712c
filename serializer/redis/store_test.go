package redis

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
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

// An address needs a port. A client may be given instead, with which it shares the options, and not
// the connections.
func TestOpen(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--user", "u", "on", ">secret", "~*", "&*", "+@all", "--user", "default", "off")
	client := redis.NewClient(&redis.Options{Addr: s.address, Username: "u", Password: "secret", DB: 3})
	for name, c := range map[string]struct {
		options Options
		refused bool
	}{
		"nothing":           {Options{}, true},
		"no port":           {Options{Addresses: []string{"127.0.0.1"}}, true},
		"an empty port":     {Options{Addresses: []string{"127.0.0.1:"}}, true},
		"a URL":             {Options{Addresses: []string{"redis://127.0.0.1:6379"}}, true},
		"a negative number": {Options{Addresses: []string{s.address}, Database: -1}, true},
		"both":              {Options{Addresses: []string{s.address}, Clients: []*redis.Client{client}}, true},
		"an address":        {Options{Addresses: []string{s.address}, Username: "u", Password: "secret", Database: 3}, false},
		"a client":          {Options{Clients: []*redis.Client{client}}, false},
		"a client, another": {Options{Clients: []*redis.Client{client}, Namespace: "other"}, false},
	} {
		st, err := Open(c.options)
		if (err != nil) != c.refused {
			t.Fatalf("%s: %v", name, err)
		}
		if err == nil {
			e := testlease.NewEngine(t, st)
			testlease.EnterSoon(t, e)
			testlease.Must(t, e.Close())
		}
	}
	testlease.Must(t, client.Ping(t.Context()).Err())
}

// What the client library says goes to the log. Bug: it went to the standard error.
func TestClientLog(t *testing.T) {
	log := new(wait.Output)
	st, err := Open(Options{Addresses: []string{"127.0.0.1:1"}, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	testlease.Must(t, err)
	defer st.Close()
	_ = st.servers.choose(t.Context())
	if !strings.Contains(log.String(), "failed to dial") {
		t.Error(log)
	}
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
