package redis

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
type relay struct {
	net.Listener
	to string

	mu     sync.Mutex
	parted bool          // no answer comes through
	delay  time.Duration // of answers
	loses  string        // the answer to the next request with this text is lost, with the connection
	healed *sync.Cond
	conns  map[net.Conn]bool
}

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{Listener: l, to: to, conns: make(map[net.Conn]bool)}
	r.healed = sync.NewCond(&r.mu)
	go r.serve()
	t.Cleanup(func() {
		l.Close()
		r.part(false)
		r.cut()
	})
	return r
}

func (r *relay) serve() {
	for {
		client, err := r.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		to := r.to
		r.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		r.conns[client], r.conns[server] = true, true
		r.mu.Unlock()
		go r.request(server, client)
		go r.answer(client, server)
	}
}

// lead has new connections go elsewhere, and cuts those that are open.
func (r *relay) lead(to string) {
	r.mu.Lock()
	r.to = to
	r.mu.Unlock()
	r.cut()
}

// request passes requests on.
func (r *relay) request(server, client net.Conn) {
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		r.mu.Lock()
		lost := r.loses != "" && strings.Contains(string(buffer[:n]), r.loses)
		if lost {
			r.loses = ""
			client.Close()
		}
		r.mu.Unlock()
		if _, failed := server.Write(buffer[:n]); failed != nil || err != nil && !lost {
			return
		}
	}
}

// lose has the answer to the next request get lost that has a text.
func (r *relay) lose(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loses = text
}

// answer passes answers on.
func (r *relay) answer(client, server net.Conn) {
	defer client.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		r.mu.Lock()
		for r.parted {
			r.healed.Wait()
		}
		delay := r.delay
		r.mu.Unlock()
		time.Sleep(delay)
		if _, failed := client.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// part keeps answers back, or lets them through again. Requests get through.
func (r *relay) part(parted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parted = parted
	r.healed.Broadcast()
}

// slow delays each answer.
func (r *relay) slow(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}
