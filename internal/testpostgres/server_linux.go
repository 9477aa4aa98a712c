// Package testpostgres runs PostgreSQL servers and poolers of Debian in separate processes,
// for tests. They use free ports of this machine, and end with the test.
package testpostgres

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Server is a PostgreSQL server of a test, or a pooler in front of one.
type Server struct {
	*testprocess.Process // the one that runs, or has run last

	Addr string // host and port
	Data string // its directory

	t        testing.TB
	programs string
	command  []string
}

// Start makes a database cluster and runs its server, with settings such as fsync=off. Its
// superuser is orderly, without a password, and so is its database.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := newServer(t, append([]string{"fsync=off", "max_wal_size=256MB"}, settings...)...)
	s.run("initdb", "--pgdata", s.Data, "--username", "orderly", "--auth", "trust", "--no-sync", "--no-instructions")
	s.Run()
	s.Query("template1", "CREATE DATABASE orderly")
	return s
}

func newServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Fatal("PostgreSQL is missing; install it with: apt-get install postgresql")
	}
	s := &Server{Addr: testprocess.FreeAddr(t), Data: filepath.Join(dir(t), "data"), t: t, programs: found[len(found)-1]}
	host, port, _ := net.SplitHostPort(s.Addr)
	s.command = []string{filepath.Join(s.programs, "postgres"), "-D", s.Data, "-c", "unix_socket_directories=", "-h", host, "-p", port}
	for _, setting := range append(settings, "shared_buffers=16MB") {
		s.command = append(s.command, "-c", setting)
	}
	return s
}

// Standby runs a server that follows this one.
func (s *Server) Standby() *Server {
	s.t.Helper()
	standby := newServer(s.t)
	s.run("pg_basebackup", "--pgdata", standby.Data, "--dbname", s.URL(), "--wal-method", "stream", "--checkpoint", "fast", "--write-recovery-conf", "--no-sync")
	standby.Run()
	return standby
}

// StartPooler runs pgbouncer in transaction mode in front of the server at an address.
func StartPooler(t testing.TB, addr string) *Server {
	t.Helper()
	p := newServer(t)
	file := filepath.Join(filepath.Dir(p.Data), "pgbouncer.ini")
	server, own := netip.MustParseAddrPort(addr), netip.MustParseAddrPort(p.Addr)
	text := fmt.Sprintf("[databases]\norderly = user=orderly host=%s port=%d\n[pgbouncer]\nlisten_addr=%s\nlisten_port=%d\nunix_socket_dir=\n"+
		"auth_type=any\npool_mode=transaction\ndefault_pool_size=4\n", server.Addr(), server.Port(), own.Addr(), own.Port())
	check(t, os.WriteFile(file, []byte(text), 0o644))
	p.command = []string{testprocess.Find("pgbouncer"), file}
	p.Run()
	return p
}

// URL is that of the server's database.
func (s *Server) URL() string { return "postgres://orderly@" + s.Addr + "/orderly?sslmode=disable" }

// Run starts the server, and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.SysProcAttr, cmd.Dir = unprivileged(), "/"
	s.Process = testprocess.Start(s.t, cmd)
	s.t.Cleanup(s.Kill) // a signal that it can handle: otherwise, its shared memory would stay
	wait.Eventually(s.t, "the server answers", func() error {
		return exec.Command(filepath.Join(s.programs, "pg_isready"), "--dbname", s.URL(), "--quiet").Run()
	})
}

// Kill ends the server at once, with all its processes.
func (s *Server) Kill() { s.end(syscall.SIGQUIT) }

// Stop ends the server, which closes its connections first.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

func (s *Server) end(sig syscall.Signal) {
	s.Thaw()
	s.End(sig)
}

// Query is what SQL gives, without headings.
func (s *Server) Query(database, sql string) string {
	s.t.Helper()
	out, err := s.TryQuery(database, sql)
	check(s.t, err)
	return out
}

// TryQuery is like [Server.Query], for SQL that may fail.
func (s *Server) TryQuery(database, sql string) (string, error) {
	cmd := exec.Command(filepath.Join(s.programs, "psql"), "--no-psqlrc", "--tuples-only", "--no-align", "--quiet",
		"--set", "ON_ERROR_STOP=1", "--command", sql, "postgres://orderly@"+s.Addr+"/"+database)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("psql: %w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Promote makes a standby a primary, and waits until it is.
func (s *Server) Promote() {
	s.t.Helper()
	s.run("pg_ctl", "promote", "--pgdata", s.Data, "--wait", "--silent")
}

func (s *Server) run(program string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.programs, program), args...)
	cmd.SysProcAttr, cmd.Dir = unprivileged(), "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// unprivileged is how a server runs, which refuses to be root.
func unprivileged() (as *syscall.SysProcAttr) {
	const nobody = 65534
	as = new(syscall.SysProcAttr)
	if os.Geteuid() == 0 {
		as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return as
}

// dir makes a directory of the test that the server's user may write to.
func dir(t testing.TB) string {
	t.Helper()
	path, err := os.MkdirTemp("", "postgres")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(path)) })
	check(t, os.Chmod(path, 0o777))
	return path
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
