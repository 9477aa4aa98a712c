package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// BuildCaddy builds Caddy with the plugin from its source in root, into dir.
func BuildCaddy(ctx context.Context, root, dir string) (program string, err error) {
	program = filepath.Join(dir, "caddy")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./cmd/caddy")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building caddy: %w\n%s", err, out)
	}
	return program, nil
}

// Root is the directory of the plugin's source.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/orderly-http/caddy-orderly").Output()
	if err != nil {
		return "", fmt.Errorf("finding the plugin's source (run this in the folder bench): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Caddy says which Caddy to run.
type Caddy struct {
	Program    string
	Directives string // of its one site
	Processes  int    // that share the work; 0 is one
	Env        []string
}

type caddySite struct {
	Admin      string // the address of its admin API
	Directives string
}

// Start runs it, with its files below home.
func (c Caddy) Start(ctx context.Context, home string) (*Server, error) {
	all := new(Server)
	for range max(1, c.Processes) {
		one, err := c.startOne(ctx, home)
		if err != nil {
			all.Stop()
			return nil, err
		}
		all.Addrs = append(all.Addrs, one.Addrs...)
		all.admins = append(all.admins, one.admins...)
		all.children = append(all.children, one.children...)
	}
	return all, nil
}

func (c Caddy) startOne(ctx context.Context, home string) (*Server, error) {
	admin, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	s, err := Program{
		Name:   c.Program,
		Config: "Caddyfile",
		Args:   []string{"run", "--config", "FILE", "--adapter", "caddyfile"},
		Env:    append([]string{"HOME=DIR", "XDG_CONFIG_HOME=DIR", "XDG_DATA_HOME=DIR"}, c.Env...),
		Server: caddySite{admin, strings.ReplaceAll(c.Directives, "\n", "\n\t")},
	}.Start(ctx, home)
	if err == nil {
		s.admins = []string{admin}
	}
	return s, err
}

// MemStats are the runtime's figures of the first Caddy, after a garbage collection.
func (s *Server) MemStats(ctx context.Context) (m runtime.MemStats, err error) {
	if err := get(ctx, s.admins[0], "/debug/pprof/heap?gc=1", nil); err != nil {
		return m, fmt.Errorf("asking caddy to collect its garbage: %w", err)
	}
	vars := struct{ MemStats *runtime.MemStats }{&m}
	if err := get(ctx, s.admins[0], "/debug/vars", &vars); err != nil {
		return m, fmt.Errorf("asking caddy for its memory: %w", err)
	}
	if m.Mallocs == 0 {
		return m, errors.New("caddy does not tell its memory")
	}
	return m, nil
}

// Tickets is how many requests are in the queues of the first Caddy, inside or
// waiting.
func (s *Server) Tickets(ctx context.Context) (n int, err error) {
	var queues []struct{ Inside, Waiting int }
	if err := get(ctx, s.admins[0], "/serialize/queues", &queues); err != nil {
		return 0, fmt.Errorf("asking caddy for its queues: %w", err)
	}
	for _, q := range queues {
		n += q.Inside + q.Waiting
	}
	return n, nil
}
