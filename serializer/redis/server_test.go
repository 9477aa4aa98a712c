package redis

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testrelay"
)

// server is a redis-server in a process of its own.
type server struct {
	t            testing.TB
	dir, address string
	args         []string
	cmd          *exec.Cmd
}

// startServer starts a server that keeps no data, unless the arguments say so. Commands
// of tests come over a socket of its own, as a user who may do everything.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis-test") // paths of sockets must be short
	must(t, err)
	s := &server{t: t, dir: dir, address: freeAddress(t)}
	_, port, _ := net.SplitHostPort(s.address)
	s.args = append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--logfile", filepath.Join(dir, "log"),
		"--repl-diskless-sync-delay", "0", "--unixsocket", filepath.Join(dir, "socket"),
		"--user", "tester", "on", ">tester", "~*", "&*", "+@all",
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
	s.cmd.Stderr = os.Stderr
	must(s.t, s.cmd.Start())
	wait.Eventually(s.t, "the server answers", func() error { return s.try("DBSIZE").Err() })
}

func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) signal(sig syscall.Signal) { must(s.t, s.cmd.Process.Signal(sig)) }

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

// relay is a link to a server that can be parted and cut.
type relay struct{ *testrelay.Relay }

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	return &relay{testrelay.Start(t, to)}
}

// part keeps answers back, or lets them through again. Requests get through.
func (r *relay) part(parted bool) { r.Set(func() { r.Deaf = parted }) }

// slow delays each answer, and lose loses that to the next request with a text.
func (r *relay) slow(delay time.Duration) { r.Set(func() { r.Delay = delay }) }
func (r *relay) lose(text string)         { r.Set(func() { r.Loses = text }) }

func (r *relay) lead(to string) { r.Lead(to) }
func (r *relay) cut()           { r.Cut() }
