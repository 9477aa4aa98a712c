package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// site is three members of etcd and three Caddys, each on a machine of its own,
// in front of one oracle.
type site struct {
	t       *testing.T
	dir     string
	ttl     time.Duration
	oracle  *oracle
	members []*process
	caddys  []*process
	clients sync.WaitGroup
}

func newSite(t *testing.T, ttl time.Duration) *site {
	t.Helper()
	n := newNetwork(t)
	// Paths of unix sockets must be short.
	dir, err := os.MkdirTemp("", "ord")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	caddy := filepath.Join(dir, "caddy")
	run(t, "go", "build", "-C", "../../../modules/etcd", "-o", caddy, "./cmd/caddy") // this module does not depend on Caddy
	s := &site{t: t, dir: dir, ttl: ttl, oracle: newOracle()}
	s.oracle.serve(t, s.socket("oracle"))
	s.addMembers(n)
	for i := range 3 {
		s.addCaddy(n, i, caddy)
	}
	return s
}

func (s *site) socket(name string) string { return filepath.Join(s.dir, name+".sock") }

func (s *site) addMembers(n *network) {
	machines := []*machine{n.machine(s.t), n.machine(s.t), n.machine(s.t)}
	at := func(i, port int) string { return net.JoinHostPort(machines[i].address, strconv.Itoa(port)) }
	for i, m := range members(s.dir, 3, at) {
		p := m.modern(s.t)
		p.machine = machines[i]
		s.members = append(s.members, runProcess(s.t, p))
	}
	wait.Until(s.t, "etcd has a leader", func() bool { return s.leader() != nil })
}

func (s *site) leader() *process {
	for _, m := range s.members {
		if m.leads() {
			return m
		}
	}
	return nil
}

const caddyfile = `{
	admin off
	persist_config off
}
http:// {
	bind unix/%s
	serialize {
		prefix a_
		timeout 30s
		engine etcd {
			endpoints %s
			ttl %s
		}
	}
	reverse_proxy unix/%s {
		header_up Token {http.serialize.token}
	}
}
`

func (s *site) addCaddy(n *network, i int, program string) {
	var endpoints []string
	for _, m := range s.members {
		endpoints = append(endpoints, "http://"+m.machine.address+":2379")
	}
	name := "caddy" + strconv.Itoa(i)
	config := filepath.Join(s.dir, name+".Caddyfile")
	text := fmt.Sprintf(caddyfile, s.socket(name), strings.Join(endpoints, " "), s.ttl, s.socket("oracle"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	p := &process{
		machine: n.machine(s.t), program: program,
		args: []string{"run", "--config", config, "--adapter", "caddyfile"},
		env:  []string{"HOME=" + s.dir, "XDG_DATA_HOME=" + filepath.Join(s.dir, name), "XDG_CONFIG_HOME=" + s.dir},
	}
	s.caddys = append(s.caddys, runProcess(s.t, p))
}

// visitAll keeps clients coming to each Caddy until the function returned is
// called.
func (s *site) visitAll(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	for i := range s.caddys {
		for j := range clients {
			s.clients.Go(func() { s.visit(ctx, i, i*clients+j) })
		}
	}
	return func() {
		cancel()
		s.clients.Wait()
	}
}

// visit sends one request after the other.
func (s *site) visit(ctx context.Context, caddy, client int) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket("caddy"+strconv.Itoa(caddy)))
	}}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		if s.request(ctx, transport, client) != http.StatusOK {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (s *site) request(ctx context.Context, transport http.RoundTripper, client int) (status int) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://site/", nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Client", strconv.Itoa(client))
	r.Header.Set("Asked", strconv.FormatInt(int64(s.oracle.Now()), 10))
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0 // the Caddy is not there
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}
