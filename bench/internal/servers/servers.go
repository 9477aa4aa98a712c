// Package servers runs the servers to be compared, on free ports of this
// machine, each with a configuration that does no more than is needed.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Server is a running server, perhaps of several processes that share the work.
type Server struct {
	Addrs    []string // where it answers
	admins   []string // of Caddy
	children []*proc.Child
}

// Stop ends it.
func (s *Server) Stop() {
	for _, c := range s.children {
		c.Stop()
	}
}

// join makes one server of several.
func join(all []*Server) *Server {
	one := new(Server)
	for _, s := range all {
		one.Addrs = append(one.Addrs, s.Addrs...)
		one.admins = append(one.admins, s.admins...)
		one.children = append(one.children, s.children...)
	}
	return one
}

// Missing is the error where a program is not installed.
type Missing struct{ Program, Package string }

func (m *Missing) Error() string {
	return fmt.Sprintf("%s is not installed; to have it: apt-get install %s", m.Program, m.Package)
}

// find returns the path of a program.
func find(program, debianPackage string) (string, error) {
	for _, name := range []string{program, filepath.Join("/usr/sbin", program)} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &Missing{program, debianPackage}
}

// FreeAddr is an address of this machine where nobody listens.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// start runs a server that is ready when it takes connections.
func start(ctx context.Context, cmd *exec.Cmd, addr string) (*Server, error) {
	child, err := proc.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	s := &Server{Addrs: []string{addr}, children: []*proc.Child{child}}
	if err := child.Await(ctx, func() error { return accepts(addr) }); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func accepts(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// writeFile writes a file into a directory of its own below dir, and returns
// both.
func writeFile(dir, name, text string) (home, file string, err error) {
	if home, err = os.MkdirTemp(dir, name+"-"); err != nil {
		return "", "", fmt.Errorf("making a directory for %s: %w", name, err)
	}
	// Servers that begin as root go on as another user.
	err = errors.Join(os.Chmod(home, 0o755), os.WriteFile(filepath.Join(home, name), []byte(text), 0o644))
	if err != nil {
		return "", "", fmt.Errorf("configuring %s: %w", name, err)
	}
	return home, filepath.Join(home, name), nil
}
