// Package servers starts the servers that are measured, and what stands behind them.
package servers

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/prometheus/procfs"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Server is a running server, perhaps of several processes that share the work.
type Server struct {
	Addrs    []string // where it answers
	Dir      string   // of the last process
	admins   []string // of Caddy
	children []*proc.Child
}

// Stop ends it.
func (s *Server) Stop() {
	for _, c := range s.children {
		c.Stop()
	}
}

// Worked is the processor time that its processes use while do runs, without those
// they started.
func (s *Server) Worked(do func() error) (time.Duration, error) {
	before, err := s.processorTime()
	if err == nil {
		err = do()
	}
	if err != nil {
		return 0, err
	}
	after, err := s.processorTime()
	return after - before, err
}

func (s *Server) processorTime() (sum time.Duration, err error) {
	for _, c := range s.children {
		threads, err := procfs.AllThreads(c.Pid())
		if err != nil {
			return 0, fmt.Errorf("listing the server's threads: %w", err)
		}
		for _, thread := range threads {
			// To the nanosecond: what else the kernel tells is in hundredths of a second.
			if stat, err := thread.Schedstat(); err == nil { // else it has ended
				sum += time.Duration(stat.RunningNanoseconds)
			}
		}
	}
	return sum, nil
}

// MostMemory is the most that its processes have had in memory, in megabytes.
func (s *Server) MostMemory() (sum float64, err error) {
	for _, c := range s.children {
		p, err := procfs.NewProc(c.Pid())
		if err != nil {
			return 0, fmt.Errorf("looking at the server's process: %w", err)
		}
		status, err := p.NewStatus()
		if err != nil {
			return 0, fmt.Errorf("looking at the server's process: %w", err)
		}
		sum += float64(status.VmHWM) / 1e6
	}
	return sum, nil
}

// configs are templates of a [Site], and the script of php-fpm.
//
//go:embed configs
var configs embed.FS

// Program is a server with a configuration file.
type Program struct {
	Name   string   // of the program, or its path
	Config string   // its template
	Args   []string // in which DIR and FILE stand for its directory and its configuration
	Env    []string // the same
	Server any      // for the configuration

	Socket  bool  // it listens on a Unix socket in its directory
	Lingers bool  // it goes on for long with requests whose clients have gone
	Missing error // what it needs and is not installed
}

// Site is what a configuration is made for.
type Site struct {
	Dir    string // of its own
	Addr   string // to answer at
	Root   bool   // it begins as root
	Server any
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

// Start runs the program in a directory of its own below home. It is ready when it
// takes connections.
func (p Program) Start(ctx context.Context, home string) (*Server, error) {
	if p.Missing != nil {
		return nil, p.Missing
	}
	path, err := machine.Find(p.Name)
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(home, "server-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for %s: %w", p.Name, err)
	}
	if p.Socket {
		addr = filepath.Join(dir, "socket")
	}
	names := strings.NewReplacer("DIR", dir, "FILE", filepath.Join(dir, "config"))
	if err := p.configure(Site{dir, addr, os.Geteuid() == 0, p.Server}); err != nil {
		return nil, fmt.Errorf("configuring %s: %w", p.Name, err)
	}
	cmd := exec.Command(path)
	cmd.Dir, cmd.Env = dir, os.Environ()
	for _, arg := range p.Args {
		cmd.Args = append(cmd.Args, names.Replace(arg))
	}
	for _, setting := range p.Env {
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
	return &Server{Addrs: []string{addr}, Dir: dir, children: []*proc.Child{child}}, nil
}

// configure writes the configuration, and a small file to serve.
func (p Program) configure(site Site) error {
	config, err := template.ParseFS(configs, "configs/"+p.Config)
	if err != nil {
		return err
	}
	var text strings.Builder
	return errors.Join(
		config.Execute(&text, site),
		os.Chmod(site.Dir, 0o755), // servers that begin as root go on as another user
		os.WriteFile(filepath.Join(site.Dir, "config"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(site.Dir, "index.html"), []byte("ok"), 0o644))
}

func accepts(addr string) error {
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
