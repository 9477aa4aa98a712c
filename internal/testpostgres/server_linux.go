// Package testpostgres runs PostgreSQL servers of Debian in separate processes, for tests.
// They use free ports of this machine, and end with the test.
package testpostgres

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Server is a PostgreSQL server of a test.
type Server struct {
	*testprocess.Process // the one that runs, or has run last

	Addr string // host and port
	Data string // its directory

	t        testing.TB
	programs string   // their directory
	args     []string // of the server
}

// cluster is a database cluster in an archive, a file without a name. Making one takes a second of a
// processor, so servers get copies.
var cluster *os.File
var makeCluster sync.Once

// Start runs a server of a new database cluster, with settings such as fsync=off. Its superuser is orderly,
// without a password, and so is its database. Only those of [StartOther] have a system identifier of their own.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	makeCluster.Do(func() {
		s := StartOther(t)
		s.Stop()
		archive, err := os.CreateTemp("", "cluster")
		testprocess.Must(t, err)
		testprocess.Must(t, os.Remove(archive.Name()))
		pack := asNobody(exec.Command("tar", "--create", "--directory", filepath.Dir(s.Data), "data"))
		pack.Stdout = archive
		testprocess.Must(t, pack.Run())
		cluster = archive
	})
	s := newServer(t, settings...)
	unpack := asNobody(exec.Command("tar", "--extract", "--directory", filepath.Dir(s.Data)))
	unpack.Stdin = io.NewSectionReader(cluster, 0, math.MaxInt64)
	testprocess.Must(t, unpack.Run())
	s.Run()
	return s
}

// StartOther is like [Start], for a server that others are told apart from.
func StartOther(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := newServer(t, settings...)
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
	s.args = []string{"-D", s.Data, "-c", "unix_socket_directories=", "-h", host, "-p", port}
	for _, setting := range append([]string{"fsync=off", "max_wal_size=256MB", "shared_buffers=16MB"}, settings...) {
		s.args = append(s.args, "-c", setting)
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

// URL is that of the server's database.
func (s *Server) URL() string { return "postgres://orderly@" + s.Addr + "/orderly?sslmode=disable" }

// Run starts the server, and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	s.Process = testprocess.Start(s.t, s.command("postgres", s.args...))
	s.t.Cleanup(s.Kill) // a signal that it can handle: otherwise, its shared memory would stay
	wait.Eventually(s.t, "the server answers", func() error {
		return s.command("pg_isready", "--dbname", s.URL(), "--quiet").Run()
	})
}

// Kill ends the server at once, with all its processes. If it was just starting one, that may have missed the
// signal, and the server would wait for it for ever.
func (s *Server) Kill() {
	defer time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(s.PID, syscall.SIGKILL) }).Stop()
	s.end(syscall.SIGQUIT)
}

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
	testprocess.Must(s.t, err)
	return out
}

// TryQuery is like [Server.Query], for SQL that may fail.
func (s *Server) TryQuery(database, sql string) (string, error) {
	out, err := s.command("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--quiet", "--set", "ON_ERROR_STOP=1",
		"--command", sql, "postgres://orderly@"+s.Addr+"/"+database).CombinedOutput()
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
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// command is a program of PostgreSQL.
func (s *Server) command(program string, args ...string) *exec.Cmd {
	return asNobody(exec.Command(filepath.Join(s.programs, program), args...))
}

// asNobody lets another user than root run a command: a server refuses to be root.
func asNobody(cmd *exec.Cmd) *exec.Cmd {
	const nobody = 65534
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// dir makes a directory of the test that the server's user may write to.
func dir(t testing.TB) string {
	t.Helper()
	path, err := os.MkdirTemp("", "postgres")
	testprocess.Must(t, err)
	t.Cleanup(func() { testprocess.Must(t, os.RemoveAll(path)) })
	testprocess.Must(t, os.Chmod(path, 0o777))
	return path
}
