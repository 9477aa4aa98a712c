package test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// long is for figures and for faults that take their time.
var long = flag.Bool("long", false, "measure longer and with more faults")

// open makes an engine, as a process does, and waits until it has a lease. On a busy
// machine etcd may be so slow that the first attempt fails; until the next one,
// arrivals are refused.
func open(t testing.TB, o etcd.Options, endpoints ...string) *etcd.Engine {
	t.Helper()
	e := openAlone(t, o, endpoints...)
	wait.Until(t, "the engine has a lease", func() bool { return e.Stats().Lease })
	return e
}

// openAlone makes an engine, and does not wait for its cluster.
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
