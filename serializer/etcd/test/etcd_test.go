package test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// long is for figures and for faults that take their time.
var long = flag.Bool("long", false, "measure longer and with more faults")

// engine is what a process has: an engine on its own store.
type engine struct {
	*serializer.Engine
	lost atomic.Int64 // leases
}

// Write reads the engine's log.
func (e *engine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("the claim on the queues was lost")) {
		e.lost.Add(1)
	}
	return len(line), nil
}

// open makes an engine, as a process does, and waits until it has a lease. On a busy
// machine etcd may be so slow that the first attempt fails; until the next one,
// arrivals are refused.
func open(t testing.TB, o etcd.Options, endpoints ...string) *engine {
	t.Helper()
	e := openAlone(t, o, endpoints...)
	wait.Eventually(t, "the engine has a lease", func() error {
		_, err := e.Queues(t.Context())
		return err
	})
	return e
}

// openAlone makes an engine, and does not wait for its cluster.
func openAlone(t testing.TB, o etcd.Options, endpoints ...string) *engine {
	t.Helper()
	o.Endpoints = endpoints
	store, err := etcd.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	e := new(engine)
	e.Engine = serializer.New(store, serializer.Options{Log: slog.New(slog.NewTextHandler(e, nil))})
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

func waitUntilEmpty(t testing.TB, c *clientv3.Client) {
	t.Helper()
	var keys []string
	wait.Until(t, "no key is left in etcd", func() bool {
		keys = keysOf(t, c)
		return len(keys) == 0
	})
	if len(keys) > 0 {
		t.Log(strings.Join(keys, "\n"))
	}
}

func TestMain(m *testing.M) {
	// Tests that run in parallel here mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testetcd.Main(m)
}
