package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// BuildCaddy builds Caddy with the plugin from the checkout this program
// belongs to, into dir.
func BuildCaddy(ctx context.Context, dir string) (program string, err error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "caddy")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/caddy")
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
	Home       string // where its files may lie
	Directives string // of its one site
	Processes  int    // that share the work; 0 is one
	Env        []string
}

type caddySite struct {
	Admin      string // the address of its admin API
	Directives string
}

var caddyfile = template.Must(template.New("Caddyfile").Parse(`{
	admin {{.Server.Admin}}
	auto_https off
	persist_config off
	log default {
		level ERROR
	}
}

http://{{.Addr}} {
	{{.Server.Directives}}
}
`))

// Start runs it.
func (c Caddy) Start(ctx context.Context) (*Server, error) {
	one := new(Server)
	caddy := program{
		name:   c.Program,
		config: caddyfile,
		args:   []string{"run", "--config", "FILE", "--adapter", "caddyfile"},
		env:    append([]string{"HOME=DIR", "XDG_CONFIG_HOME=DIR", "XDG_DATA_HOME=DIR"}, c.Env...),
	}
	for range max(1, c.Processes) {
		admin, err := FreeAddr()
		if err != nil {
			one.Stop()
			return nil, err
		}
		s, err := caddy.start(ctx, c.Home, caddySite{admin, strings.ReplaceAll(c.Directives, "\n", "\n\t")})
		if err != nil {
			one.Stop()
			return nil, err
		}
		one.Addrs = append(one.Addrs, s.Addrs...)
		one.admins = append(one.admins, admin)
		one.children = append(one.children, s.children...)
	}
	return one, nil
}

// MemStats are some of the runtime's figures of one Caddy, after a garbage
// collection.
type MemStats struct {
	HeapAlloc  float64 // bytes in use
	StackInuse float64 // bytes
	Mallocs    float64 // objects ever allocated
	TotalAlloc float64 // bytes ever allocated
}

// MemStats asks the first Caddy for them.
func (s *Server) MemStats(ctx context.Context) (m MemStats, err error) {
	text, err := get(ctx, "http://"+s.admins[0]+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return m, fmt.Errorf("asking caddy for its memory: %w", err)
	}
	fields := map[string]*float64{
		"HeapAlloc": &m.HeapAlloc, "Stack": &m.StackInuse, "Mallocs": &m.Mallocs, "TotalAlloc": &m.TotalAlloc,
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "# "), " = ")
		field := fields[name]
		if !ok || field == nil {
			continue
		}
		value, _, _ = strings.Cut(value, " ") // Stack tells two
		if *field, err = strconv.ParseFloat(value, 64); err != nil {
			return m, fmt.Errorf("reading %s of caddy: %w", name, err)
		}
	}
	if m.HeapAlloc == 0 || m.Mallocs == 0 {
		return m, fmt.Errorf("caddy does not tell its memory")
	}
	return m, nil
}

// Tickets is how many requests are in the queues of the first Caddy, inside or
// waiting.
func (s *Server) Tickets(ctx context.Context) (n int, err error) {
	text, err := get(ctx, "http://"+s.admins[0]+"/serialize/queues")
	if err != nil {
		return 0, fmt.Errorf("asking caddy for its queues: %w", err)
	}
	var queues []struct{ Inside, Waiting int }
	if err := json.Unmarshal(text, &queues); err != nil {
		return 0, fmt.Errorf("reading caddy's queues: %w", err)
	}
	for _, q := range queues {
		n += q.Inside + q.Waiting
	}
	return n, nil
}
