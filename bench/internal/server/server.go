//go:build linux

// Package server starts the servers that are measured, and what stands behind them.
package server

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what a server is configured for. Its template is the one of configs with
// the program's name.
type Config struct {
	Program  string // its name, or its path
	Upstream string // host:port, or the socket of php-fpm; empty answers at once
	PHP      string // the folder of its scripts, if the upstream is php-fpm
	Engine   string // of Caddy's queue; empty has none
	One      bool   // of the others: one request at a time
	Threads  int    // of HAProxy; 0 is one for each core, as by default
}

// site is a configuration with what only its template needs.
type site struct {
	Config
	Dir, Addr string
	Root      bool     // it begins as root, and goes on as another user
	Libraries []string // that Debian's mod_qos needs and does not load by itself
}

//go:embed configs
var configs embed.FS

// arguments are how a program is called with its configuration, which is FILE.
var arguments = map[string]string{
	"caddy":   "run --config FILE --adapter caddyfile",
	"haproxy": "-db -f FILE",
	"apache2": "-D FOREGROUND -f FILE",
	"php-fpm": "-F -y FILE",
}

// Server is a running server.
type Server struct {
	Addr string // where it answers, or its socket
	Dir  string // its own
	cmd  *exec.Cmd
	stop context.CancelFunc
	done chan struct{}
}

// ErrMissing means that a program is not installed.
var ErrMissing = errors.New("not installed")

// Start runs a server in a directory of its own below parent, until ctx ends or
// [Server.Stop]. It is ready when it takes connections.
func Start(ctx context.Context, c Config, parent string) (*Server, error) {
	s := &Server{done: make(chan struct{})}
	var complaint bytes.Buffer
	err := s.configure(c, parent)
	if err == nil {
		err = s.start(ctx, c, &complaint)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w\n%s", c.Program, err, &complaint)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, c Config, complaint io.Writer) error {
	path, err := Find(c.Program)
	if err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(ctx)
	args := strings.ReplaceAll(arguments[filepath.Base(c.Program)], "FILE", filepath.Join(s.Dir, "config"))
	s.cmd = exec.CommandContext(ctx, path, strings.Fields(args)...)
	s.cmd.Stdout, s.cmd.Stderr = complaint, complaint
	s.cmd.Env = append(os.Environ(), "HOME="+s.Dir, "XDG_CONFIG_HOME="+s.Dir, "XDG_DATA_HOME="+s.Dir)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s.cmd.Cancel = func() error { return syscall.Kill(-s.Pid(), syscall.SIGKILL) } // with all that it started
	if err := s.cmd.Start(); err != nil {
		s.stop()
		return err
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // it is killed
	}()
	if err := s.awaitReady(); err != nil {
		s.Stop()
		return err
	}
	return nil
}

// Stop ends the server.
func (s *Server) Stop() {
	s.stop()
	<-s.done
}

// Find looks for a program, also where Debian has those of the administrator. Debian
// names php-fpm after its version.
func Find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range []string{"/usr/sbin/" + program, "/usr/sbin/" + program + "[0-9]*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, ErrMissing)
}

// configure writes the configuration.
func (s *Server) configure(c Config, parent string) (err error) {
	name := filepath.Base(c.Program)
	if s.Dir, err = os.MkdirTemp(parent, "server-"); err != nil {
		return err
	}
	s.Addr = filepath.Join(s.Dir, "socket")
	if name != "php-fpm" { // over TCP, its answers would wait for delayed acknowledgements
		if s.Addr, err = freeAddr(); err != nil {
			return err
		}
	}
	full := site{Config: c, Dir: s.Dir, Addr: s.Addr, Root: os.Geteuid() == 0}
	if c.One && name == "apache2" {
		full.Libraries, _ = filepath.Glob("/usr/lib/*/libpcre.so.3")
		if _, err := os.Stat("/usr/lib/apache2/modules/mod_qos.so"); err != nil || len(full.Libraries) == 0 {
			return fmt.Errorf("libapache2-mod-qos with libpcre3: %w", ErrMissing)
		}
	}
	text, err := template.ParseFS(configs, "configs/"+name)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(s.Dir, "config"))
	if err != nil {
		return err
	}
	return errors.Join(text.Execute(file, full), file.Close(), os.Chmod(s.Dir, 0o755))
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *Server) awaitReady() error {
	network := "tcp"
	if filepath.IsAbs(s.Addr) {
		network = "unix"
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.DialTimeout(network, s.Addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.done:
			return fmt.Errorf("it ended: %s", s.cmd.ProcessState)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// Pid is the number of its process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// ProcessorTime is how long the server's process has been at work, in all its
// threads. What else runs on the machine does not count.
func (s *Server) ProcessorTime() (time.Duration, error) {
	// The clock of a process, as clock_getcpuclockid(3) makes it of its number.
	clock := int32(^s.Pid()<<3 | 2)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("reading the processor time of process %d: %w", s.Pid(), err)
	}
	return time.Duration(t.Nano()), nil
}
