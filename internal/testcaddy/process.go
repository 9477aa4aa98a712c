// Package testcaddy runs Caddy with the plugin in processes of its own, for
// tests. A test binary is Caddy itself: run again with a mark in its
// environment, it is the command caddy. So there is nothing to build.
package testcaddy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

const mark = "ORDERLY_TEST_CADDY"

var canBeCaddy bool

// RunIfCaddy never returns if this process was started to be Caddy. A test
// package calls it in an init.
func RunIfCaddy() {
	canBeCaddy = true
	if os.Getenv(mark) == "" {
		return
	}
	caddycmd.Main()
	os.Exit(0)
}

// Patience is how long a test waits for what should happen at once.
const Patience = time.Minute

// Command is the command caddy with arguments. It is killed at the end of the
// test, should it still run.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if !canBeCaddy { // the child would run the tests, whose children would, too
		t.Fatal("this test package does not call RunIfCaddy in an init")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	home := t.TempDir()
	cmd.Dir = home
	cmd.Env = append(os.Environ(), mark+"=1", "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	cmd.WaitDelay = time.Second
	return cmd
}

// Output runs the command caddy and returns what it wrote, and its exit code.
func Output(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := Command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("running caddy %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Server is a running Caddy.
type Server struct {
	Admin string // host:port
	PID   int

	t    testing.TB
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{}
}

// Start runs Caddy with a Caddyfile until the end of the test. The Caddyfile
// gets a global option for the admin API, unless it has its own options; then
// they must contain "admin {$ADMIN}".
func Start(t testing.TB, caddyfile string, env ...string) *Server {
	t.Helper()
	admin := FreeAddr(t)
	file := filepath.Join(t.TempDir(), "Caddyfile")
	WriteFile(t, file, withAdmin(caddyfile))
	s := &Server{Admin: admin, t: t, done: make(chan struct{})}
	s.cmd = Command(t, "run", "--config", file, "--adapter", "caddyfile")
	s.cmd.Env = append(s.cmd.Env, "ADMIN="+admin)
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("starting caddy: %v", err)
	}
	s.PID = s.cmd.Process.Pid
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(s.stop)
	s.awaitAdmin()
	return s
}

func withAdmin(caddyfile string) string {
	if strings.Contains(caddyfile, "{$ADMIN}") {
		return caddyfile
	}
	return "{\n\tadmin {$ADMIN}\n}\n" + caddyfile
}

// awaitAdmin returns when the configuration is loaded: only then does the
// admin API tell one.
func (s *Server) awaitAdmin() {
	s.t.Helper()
	s.Eventually("caddy has its configuration", func() error {
		select {
		case <-s.done:
			s.t.Fatalf("caddy ended:\n%s", s.Log())
		default:
		}
		resp, err := http.Get("http://" + s.Admin + "/config/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if strings.TrimSpace(string(text)) == "null" {
			return errors.New("no configuration yet")
		}
		return err
	})
}

// Reload gives the server another Caddyfile.
func (s *Server) Reload(caddyfile string) {
	s.t.Helper()
	text := strings.ReplaceAll(withAdmin(caddyfile), "{$ADMIN}", s.Admin)
	resp, err := http.Post("http://"+s.Admin+"/load", "text/caddyfile", strings.NewReader(text))
	if err != nil {
		s.t.Fatalf("reloading caddy: %v", err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		s.t.Fatalf("reloading caddy: %s: %s", resp.Status, answer)
	}
}

// Log is what the server has written so far.
func (s *Server) Log() string { return s.log.String() }

// Kill ends the process at once, and waits until it is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

func (s *Server) stop() {
	s.goOn()
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.done:
	case <-time.After(3 * time.Second):
		s.Kill()
	}
	if s.t.Failed() {
		s.t.Logf("log of caddy, process %d:\n%s", s.PID, s.Log())
	}
}

// Eventually tries until there is no error, or patience ends.
func (s *Server) Eventually(what string, try func() error) {
	s.t.Helper()
	Eventually(s.t, what, try)
}

// Eventually tries until there is no error, or patience ends.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var (
	givenMu sync.Mutex
	given   = make(map[string]bool)
)

// FreeAddr is an address of this machine that nobody listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	givenMu.Lock()
	defer givenMu.Unlock()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("finding a free port: %v", err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		if !given[addr] {
			given[addr] = true
			return addr
		}
	}
}

// WriteFile writes a file of a test.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer is a buffer that a process writes while a test reads.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Need skips the test where a program is missing.
func Need(t testing.TB, program, install string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is missing; install it with: %s", program, install)
	}
	return path
}
