package main

import (
	"embed"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// config is what a server is configured for. Its template is the one of configs with
// the program's name.
type config struct {
	Program  string // its name, or its path
	Upstream string // host:port, or the socket of php-fpm; empty answers at once
	PHP      string // the folder of its scripts, if the upstream is php-fpm
	Lines    string // of Caddy's site, before what answers
	One      bool   // of the others: one request at a time
	Threads  int    // of HAProxy; 0 is one for each core, as by default
}

// site is a configuration with what only its template needs.
type site struct {
	config
	Dir, Addr string
	Root      bool     // it begins as root, and goes on as another user
	Libraries []string // that Debian's mod_qos needs and does not load by itself
}

//go:embed configs
var templates embed.FS

// arguments are how a program is called with its configuration, which is FILE.
var arguments = map[string]string{
	"caddy":   "run --config FILE --adapter caddyfile",
	"haproxy": "-db -f FILE",
	"apache2": "-D FOREGROUND -f FILE",
	"php-fpm": "-F -y FILE",
}

// server is a running server.
type server struct {
	Addr string // where it answers, or its socket
	Dir  string // its own
	*testprocess.Process
}

// startServer runs a server in a directory of its own below parent until the end of the benchmark. It is
// ready when it takes connections. A program that is missing skips the benchmark.
func startServer(b *testing.B, c config, parent string) *server {
	b.Helper()
	name, path := filepath.Base(c.Program), find(b, c.Program)
	dir, err := os.MkdirTemp(parent, "server-")
	must(b, err)
	s, network := &server{Dir: dir, Addr: filepath.Join(dir, "socket")}, "unix"
	if name != "php-fpm" { // over TCP, its answers would wait for delayed acknowledgements
		s.Addr, network = testprocess.FreeAddr(b), "tcp"
	}
	file := s.configure(b, c, name)
	cmd := exec.Command(path, strings.Fields(strings.ReplaceAll(arguments[name], "FILE", file))...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	s.Process = testprocess.Start(b, cmd)
	b.Cleanup(func() { s.End(syscall.SIGTERM) }) // with all that it started
	wait.Eventually(b, name+" takes connections", func() error {
		s.WantRunning()
		conn, err := net.DialTimeout(network, s.Addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return s
}

// find looks for a program, and skips the benchmark if the program is missing.
func find(b *testing.B, program string) string {
	b.Helper()
	path := testprocess.Find(program)
	if path == "" {
		b.Skip(program, "is missing")
	}
	return path
}

// configure writes the configuration, and returns its path.
func (s *server) configure(b *testing.B, c config, name string) (path string) {
	b.Helper()
	full := site{config: c, Dir: s.Dir, Addr: s.Addr, Root: os.Geteuid() == 0}
	if c.One && name == "apache2" {
		full.Libraries, _ = filepath.Glob("/usr/lib/*/libpcre.so.3")
		if _, err := os.Stat("/usr/lib/apache2/modules/mod_qos.so"); err != nil || len(full.Libraries) == 0 {
			b.Skip("libapache2-mod-qos with libpcre3 is missing")
		}
	}
	text, err := template.ParseFS(templates, "configs/"+name)
	must(b, err)
	file, err := os.Create(filepath.Join(s.Dir, "config"))
	must(b, err)
	defer file.Close()
	must(b, text.Execute(file, full))
	must(b, os.Chmod(s.Dir, 0o755))
	return file.Name()
}

// processorTime is how long the server's process has been at work, in all its
// threads. What else runs on the machine does not count.
func (s *server) processorTime(b *testing.B) time.Duration {
	b.Helper()
	// The clock of a process, as clock_getcpuclockid(3) makes it of its number.
	clock := int32(^s.PID<<3 | 2)
	var t unix.Timespec
	must(b, unix.ClockGettime(clock, &t))
	return time.Duration(t.Nano())
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
