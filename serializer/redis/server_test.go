package redis

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/wait"
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
	testlease.Must(t, err)
	s := &server{t: t, dir: dir, address: freeAddress(t)}
	_, port, _ := net.SplitHostPort(s.address)
	s.args = append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--logfile", filepath.Join(dir, "log"),
		"--repl-diskless-sync-delay", "0", "--unixsocket", filepath.Join(dir, "socket"),
		"--user", "tester", "on", ">tester", "~*", "&*", "+@all",
	}, args...)
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	s.Run()
	return s
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testlease.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// Run starts the server, also again.
func (s *server) Run() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Stderr = os.Stderr
	testlease.Must(s.t, s.cmd.Start())
	wait.Eventually(s.t, "the server answers", func() error { return s.try("DBSIZE").Err() })
}

// Kill is kill -9.
func (s *server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Freeze stops the process.
func (s *server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets it go on.
func (s *server) Thaw() { s.signal(syscall.SIGCONT) }

// Address is where clients connect to.
func (s *server) Address() string { return s.address }

// Tickets are all in the default namespace.
func (s *server) Tickets() int { return int(s.do("HLEN", "{orderly}:tickets").(int64)) }

func (s *server) signal(sig syscall.Signal) { testlease.Must(s.t, s.cmd.Process.Signal(sig)) }

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
