// Package testetcd runs etcd in the process of a test.
package testetcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Member is a cluster of one.
type Member struct {
	Config *embed.Config // may be changed before Start
	URL    string        // for clients
	TLS    *tls.Config   // of clients; nil for http

	server *embed.Etcd
}

// New prepares a member on free ports of loopback.
func New(t testing.TB) *Member {
	t.Helper()
	m := &Member{URL: "http://" + FreeAddress(t)}
	m.Config = newConfig("only", filepath.Join(t.TempDir(), "data"), m.URL, "http://"+FreeAddress(t))
	m.Config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	m.Config.QuotaBackendBytes = 1 << 30
	return m
}

// FreeAddress returns an address of loopback that nobody listens on. Its port is none
// of those that systems give to outgoing connections, because one of them might take
// it before the member does.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		addr := l.Addr().String()
		_ = l.Close()
		if _, again := given.LoadOrStore(addr, true); !again {
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

var given sync.Map // the addresses that FreeAddress has returned

// Start runs the member until [Member.Stop] or the end of the test.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	var server *embed.Etcd
	var err error
	wait.Poll(10*time.Second, func() bool {
		server, err = embed.StartEtcd(m.Config)
		// A process that another test is starting has a copy of FreeAddress's socket for
		// a moment.
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		t.Fatal(err)
	}
	m.server = server
	t.Cleanup(m.Stop)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd did not become ready")
	}
}

// Stop stops the member. Its data stays.
func (m *Member) Stop() {
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

// Start runs a cluster of one until the test ends.
func Start(t testing.TB) *Member {
	t.Helper()
	m := New(t)
	m.Start(t)
	return m
}

// Client talks to etcd as an operator would.
func (m *Member) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.URL}, TLS: m.TLS, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Leases lists the leases in etcd.
func Leases(t testing.TB, c *clientv3.Client) []clientv3.LeaseStatus {
	t.Helper()
	answer, err := c.Leases(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return answer.Leases
}

// Main runs a package's tests, or what [ServerEnv] says, and exits. It silences etcd's
// client, which logs the faults that the tests cause to standard error.
func Main(m *testing.M) {
	err := os.Setenv("ETCD_CLIENT_DEBUG", "fatal")
	if os.Getenv(ServerEnv) != "" {
		err = serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
