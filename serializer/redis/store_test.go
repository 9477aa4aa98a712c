package redis

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
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

// An address needs a port.
func TestOpen(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--user", "u", "on", ">secret", "~*", "&*", "+@all", "--user", "default", "off")
	for name, c := range map[string]struct {
		options Options
		refused bool
	}{
		"nothing":           {Options{}, true},
		"no port":           {Options{Addresses: []string{"127.0.0.1"}}, true},
		"an empty port":     {Options{Addresses: []string{"127.0.0.1:"}}, true},
		"no such port":      {Options{Addresses: []string{"127.0.0.1:99999"}}, true},
		"a URL":             {Options{Addresses: []string{"redis://127.0.0.1:6379"}}, true},
		"a negative number": {Options{Addresses: []string{s.address}, Database: -1}, true},
		"an address":        {Options{Addresses: []string{s.address}, Username: "u", Password: "secret", Database: 3}, false},
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
}

// What the client library says goes to the log. Bug: it went to the standard error.
func TestClientLog(t *testing.T) {
	log := new(testprocess.Log)
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

// meta is a number that the script remembers. Times are in microseconds of its clock.
func meta(t testing.TB, s *server, field string) time.Duration {
	t.Helper()
	text, _ := s.do("HGET", "{orderly}:meta", field).(string)
	n, err := strconv.ParseInt(text, 10, 64)
	testlease.Must(t, err)
	return time.Duration(n) * time.Microsecond
}

// Bug: each session that began while the store was closed kept it closed for another time to
// live, for all. One that is longer than those known still counts, from the beginning.
func TestBeginsWhileClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	begin := func(ttl time.Duration) time.Duration {
		testlease.Must(t, queues(open(t, Options{TTL: ttl}, s.address)))
		return meta(t, s, "closed")
	}
	first := begin(time.Minute)
	if later := begin(time.Minute); later != first {
		t.Errorf("a second session prolongs the closing by %s", later-first)
	}
	if longer := begin(2 * time.Minute); longer != first+time.Minute {
		t.Errorf("a session of two minutes prolongs the closing by %s; expected 1m", longer-first)
	}
	if last := begin(time.Minute); last != first+time.Minute {
		t.Errorf("the last session moves the end by %s", last-first-time.Minute)
	}
}

// Bug: the longest time to live that was ever used counted for ever: a single process with an
// hour let each later restart close the store for an hour.
func TestLongestForgotten(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	long := open(t, Options{TTL: time.Hour}, s.address)
	testlease.Must(t, queues(long))
	testlease.Must(t, long.Close())
	e := open(t, Options{}, s.address)
	testlease.Must(t, queues(e))
	if longest := meta(t, s, "longest"); longest != time.Hour {
		t.Errorf("%s counts while a session may have an hour", longest)
	}
	s.do("HINCRBY", "{orderly}:meta", "clock", int64(time.Hour/time.Microsecond)) // rather than wait
	wait.Until(t, "the hour is forgotten", func() bool { return meta(t, s, "longest") == ttl })
	testlease.EnterSoon(t, e)
}

// Bug: a server that got its first replica, or gave up its backlog after its last one had left,
// was taken for another one: it has a new replication ID then. So it was closed for a time to live.
// One that was a replica itself must be closed, once.
func TestFirstReplica(t *testing.T) {
	t.Parallel()
	master, replica := startServer(t, "--repl-backlog-ttl", "1"), startServer(t)
	e := opened(t, 1, master.address)[0]
	holder := testlease.Enter(t, e)
	closed := meta(t, master, "closed")
	replicationID := func() string { return infoValue(master.do("INFO", "replication").(string), "master_replid") }
	for _, step := range []struct {
		what   string
		do     func()
		closes bool
	}{
		{"the first replica is there", func() { follow(t, replica, master) }, false},
		{"the backlog is given up", func() { replica.do("REPLICAOF", "NO", "ONE") }, false},
		{"it was a replica", func() {
			master.do("CONFIG", "SET", "repl-backlog-ttl", "0") // for ever
			follow(t, master, replica)
			master.do("REPLICAOF", "NO", "ONE")
		}, true},
		{"its backlog is given up", func() { master.do("CONFIG", "SET", "repl-backlog-ttl", "1") }, false},
	} {
		before := replicationID()
		step.do()
		wait.Until(t, step.what, func() bool { return replicationID() != before })
		testlease.Must(t, queues(e))
		now := meta(t, master, "closed")
		if (now != closed) != step.closes {
			t.Errorf("%s: the server is closed for %s", step.what, now-meta(t, master, "clock"))
		}
		if closed = now; !step.closes && len(holder.Revoked) > 0 {
			t.Errorf("%s: revoked: %v", step.what, <-holder.Revoked)
		}
	}
}

// follow makes a server a replica of another one, and waits until it has its data.
func follow(t testing.TB, s, of *server) {
	t.Helper()
	host, port, _ := strings.Cut(of.address, ":")
	s.do("REPLICAOF", host, port)
	wait.Until(t, "it follows", func() bool {
		return infoValue(s.do("INFO", "replication").(string), "master_link_status") == "up"
	})
}
