package redis

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// server is a redis-server of its own process.
type server struct {
	t       testing.TB
	address string
	args    []string
	cmd     *exec.Cmd
}

// startServer starts a server that keeps no data, unless the arguments say so.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis-test")
	must(t, err)
	s := &server{t: t, address: freeAddress(t)}
	_, port, _ := net.SplitHostPort(s.address)
	s.args = append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--repl-diskless-sync-delay", "0",
		"--unixsocket", filepath.Join(dir, "socket"), // which needs no login and no TLS
	}, args...)
	t.Cleanup(func() {
		s.kill()
		os.RemoveAll(dir)
	})
	s.start()
	return s
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	must(s.t, s.cmd.Start())
	wait.Until(s.t, "the server answers", func() bool {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) signal(sig syscall.Signal) { must(s.t, s.cmd.Process.Signal(sig)) }

// do sends a command, without the store.
func (s *server) do(args ...any) any {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.address, MaintNotificationsConfig: nil})
	defer c.Close()
	answer, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return answer
}

const ttl = 2 * time.Second

func openStore(t testing.TB, s *server, o Options) *Store {
	t.Helper()
	if o.Addresses == nil {
		o.Addresses = []string{s.address}
	}
	if o.TTL == 0 {
		o.TTL = ttl
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	st, err := Open(o)
	must(t, err)
	return st
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var _ = fmt.Sprint
var _ = strconv.Itoa
var _ serializer.Store
