package test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

// long is for figures and for faults that take their time.
var long = flag.Bool("long", false, "measure longer and with more faults")

// member is an etcd server in this process.
type member struct {
	config *embed.Config
	server *embed.Etcd
	url    string
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newMember prepares a cluster of one.
func newMember(t testing.TB) *member {
	t.Helper()
	c := embed.NewConfig()
	c.Name = "only"
	c.Dir = filepath.Join(t.TempDir(), "data")
	c.Logger, c.ZapLoggerBuilder = "zap", embed.NewZapLoggerBuilder(zap.NewNop())
	clients, peers := endpoint(t, freeAddress(t)), endpoint(t, freeAddress(t))
	c.ListenClientUrls, c.AdvertiseClientUrls = clients, clients
	c.ListenPeerUrls, c.AdvertisePeerUrls = peers, peers
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.QuotaBackendBytes = 1 << 30
	return &member{config: c, url: clients[0].String()}
}

func endpoint(t testing.TB, address string) []url.URL {
	t.Helper()
	return []url.URL{{Scheme: "http", Host: address}}
}

func (m *member) start(t testing.TB) {
	t.Helper()
	server, err := embed.StartEtcd(m.config)
	if err != nil {
		t.Fatal(err)
	}
	m.server = server
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd did not become ready")
	}
}

func (m *member) stop() {
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

// startEtcd runs a cluster of one until the test ends.
func startEtcd(t testing.TB) *member {
	t.Helper()
	m := newMember(t)
	m.start(t)
	t.Cleanup(m.stop)
	return m
}

// client talks to etcd as an operator would.
func (m *member) client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.url}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// open makes an engine, as one process has it, and waits until it has a lease. On a
// busy machine etcd may be so slow that the first attempt fails; until the next one,
// arrivals are refused.
func open(t testing.TB, o etcd.Options, endpoints ...string) *etcd.Engine {
	t.Helper()
	e := openAlone(t, o, endpoints...)
	waitUntil(t, "the engine has a lease", func() bool { return e.Stats().Lease })
	return e
}

// openAlone makes an engine whose cluster need not be there.
func openAlone(t testing.TB, o etcd.Options, endpoints ...string) *etcd.Engine {
	t.Helper()
	o.Endpoints = endpoints
	e, err := etcd.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// keysOf lists the tickets in etcd.
func keysOf(t testing.TB, c *clientv3.Client) (keys []string) {
	t.Helper()
	answer, err := c.Get(context.Background(), etcd.DefaultNamespace, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		if !strings.HasPrefix(string(kv.Key), etcd.DefaultNamespace+"!") {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// waitUntil waits for a condition, for at most half a minute.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

func waitUntilEmpty(t testing.TB, c *clientv3.Client) {
	t.Helper()
	var keys []string
	waitUntil(t, "no key is left in etcd", func() bool {
		keys = keysOf(t, c)
		return len(keys) == 0
	})
	if len(keys) > 0 {
		t.Log(strings.Join(keys, "\n"))
	}
}

// lockedBuffer takes what a process says while the test reads it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// TestMain keeps etcd's client quiet: it says on standard error what the tests
// do to it.
func TestMain(m *testing.M) {
	if err := os.Setenv("ETCD_CLIENT_DEBUG", "fatal"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Tests that run beside each other here mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
