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
	"strings"
	"text/template"
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

// Missing is the error where a program is not installed.
type Missing struct{ Program, Package string }

func (m *Missing) Error() string {
	return fmt.Sprintf("%s is not installed; to have it: apt-get install %s", m.Program, m.Package)
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

// program is a server that reads a configuration file.
type program struct {
	name   string // of the program, and of its Debian package
	config *template.Template
	args   []string // in which DIR and FILE stand for its directory and its configuration
	env    []string // the same
}

// site is what a configuration is made for.
type site struct {
	Dir    string // of its own
	Addr   string // to answer at
	Server any
}

// start runs the program in a directory of its own below home. It is ready when
// it takes connections.
func (p program) start(ctx context.Context, home string, server any) (*Server, error) {
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(home, "server-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for %s: %w", p.name, err)
	}
	var config strings.Builder
	file := filepath.Join(dir, "config")
	err = errors.Join(
		p.config.Execute(&config, site{dir, addr, server}),
		os.Chmod(dir, 0o755), // servers that begin as root go on as another user
		os.WriteFile(file, []byte(config.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "index.html"), []byte("ok"), 0o644))
	if err != nil {
		return nil, fmt.Errorf("configuring %s: %w", p.name, err)
	}
	names := strings.NewReplacer("DIR", dir, "FILE", file)
	cmd := exec.Command(path)
	cmd.Dir, cmd.Env = dir, os.Environ()
	for _, arg := range p.args {
		cmd.Args = append(cmd.Args, names.Replace(arg))
	}
	for _, setting := range p.env {
		cmd.Env = append(cmd.Env, names.Replace(setting))
	}
	child, err := proc.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if err := child.Await(ctx, func() error { return accepts(addr) }); err != nil {
		child.Stop()
		return nil, err
	}
	return &Server{Addrs: []string{addr}, children: []*proc.Child{child}}, nil
}

func (p program) find() (string, error) {
	for _, name := range []string{p.name, filepath.Join("/usr/sbin", p.name)} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &Missing{p.name, p.name}
}

func accepts(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
