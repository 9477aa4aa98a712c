package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// site is three members of etcd and three Caddys, each on a machine of its own,
// in front of one oracle.
type site struct {
	t       *testing.T
	dir     string
	ttl     time.Duration
	oracle  *oracle
	members []member
	caddys  []*caddy
	clients sync.WaitGroup
	refused atomic.Int64 // requests
}

// member is one on a machine of its own.
type member struct {
	*testetcd.Server
	*machine
}

// caddy is one on a machine of its own. start starts it, also again.
type caddy struct {
	*testprocess.Process
	*machine
	start func()
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
	program := filepath.Join(dir, "caddy")
	run(t, "go", "build", "-C", "../../../modules/etcd", "-o", program, "./cmd/caddy") // this module does not depend on Caddy
	s := &site{t: t, dir: dir, ttl: ttl, oracle: newOracle()}
	s.oracle.serve(t, s.socket("oracle"))
	s.addMembers(n)
	for i := range 3 {
		s.addCaddy(n, "caddy"+strconv.Itoa(i), program)
	}
	return s
}

func (s *site) socket(name string) string { return filepath.Join(s.dir, name+".sock") }

func (s *site) addMembers(n *network) {
	machines := []*machine{n.machine(s.t), n.machine(s.t), n.machine(s.t)}
	var places []testetcd.Place
	for _, m := range machines {
		places = append(places, testetcd.Place{URL: "http://" + m.address + ":2379", Peer: "http://" + m.address + ":2380", Launcher: m.launcher()})
	}
	for i, m := range testetcd.Prepare(s.t, testetcd.Own, places) {
		m.Run()
		s.members = append(s.members, member{m, machines[i]})
	}
	_ = s.leader()
}

// leader waits until exactly one member leads.
func (s *site) leader() (leader member) {
	wait.Until(s.t, "etcd has a leader", func() bool {
		n := 0
		for _, m := range s.members {
			if m.Leads() {
				leader = m
				n++
			}
		}
		return n == 1
	})
	return leader
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

func (s *site) addCaddy(n *network, name, program string) {
	var endpoints []string
	for _, m := range s.members {
		endpoints = append(endpoints, m.URL)
	}
	config := filepath.Join(s.dir, name+".Caddyfile")
	text := fmt.Sprintf(caddyfile, s.socket(name), strings.Join(endpoints, " "), s.ttl, s.socket("oracle"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	c := &caddy{machine: n.machine(s.t)}
	c.start = func() {
		command := append(c.launcher(), program, "run", "--config", config, "--adapter", "caddyfile")
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_DATA_HOME="+filepath.Join(s.dir, name), "XDG_CONFIG_HOME="+s.dir)
		c.Process = testprocess.Start(s.t, cmd)
	}
	c.start()
	s.caddys = append(s.caddys, c)
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
	if answer.StatusCode == http.StatusServiceUnavailable {
		s.refused.Add(1)
	}
	return answer.StatusCode
}
