package redis

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// server is a redis-server in a process of its own.
type server struct {
	*testprocess.Process // the one that runs, or has run last

	t            testing.TB
	dir, address string
	args         []string
}

// startServer starts a server that keeps no data, unless the arguments say so. Commands
// of tests come over a socket of its own, as a user who may do everything.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis-test") // paths of sockets must be short
	testlease.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{t: t, dir: dir, address: testprocess.FreeAddr(t)}
	_, port, _ := net.SplitHostPort(s.address)
	s.args = append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--logfile", filepath.Join(dir, "log"),
		"--repl-diskless-sync-delay", "0", "--unixsocket", filepath.Join(dir, "socket"),
		"--user", "tester", "on", ">tester", "~*", "&*", "+@all",
	}, args...)
	s.Run()
	return s
}

// Run starts the server, also again.
func (s *server) Run() {
	s.t.Helper()
	s.Process = testprocess.Start(s.t, exec.Command("redis-server", s.args...))
	wait.Eventually(s.t, "the server answers", func() error { return s.try("DBSIZE").Err() })
}

// Address is where clients connect to.
func (s *server) Address() string { return s.address }

// Tickets are all in the default namespace.
func (s *server) Tickets() int { return int(s.do("HLEN", "{orderly}:tickets").(int64)) }

// try sends a command.
func (s *server) try(args ...any) *redis.Cmd {
	c := redis.NewClient(&redis.Options{
		Network: "unix", Addr: filepath.Join(s.dir, "socket"), Username: "tester", Password: "tester", MaxRetries: -1,
		ReadTimeout: wait.Patience, // of a busy machine
	})
	defer c.Close()
	return c.Do(context.Background(), args...)
}

func (s *server) do(args ...any) any {
	s.t.Helper()
	answer, err := s.try(args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return answer
}

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
