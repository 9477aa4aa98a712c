package test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// Caddys share the queue, come before their cluster, and may be killed.
func TestCaddy(t *testing.T) {
	t.Parallel()
	testcaddy.TestEngine(t, func(t *testing.T) testcaddy.Engine {
		m := testetcd.New(t)
		client := sync.OnceValue(func() *clientv3.Client { return m.Client(t) })
		return testcaddy.Engine{
			Options: "etcd {\nendpoints " + m.URL + "\nttl {$TTL}\n}", Path: "etcd:orderly",
			Start:  func() { m.Start(t) },
			Claims: func() int { return len(testetcd.Leases(t, client())) },
		}
	})
}

// Handlers with the same cluster, namespace and prefix share a queue, even if the ttl or
// the order of members differs. Bug: a request that passed two such handlers waited for
// itself until its timeout.
func TestNestedWithOtherSettings(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	another := strings.Replace(m.URL, "127.0.0.1", "localhost", 1)
	handler := func(ttl string, endpoints ...string) string {
		return fmt.Sprintf(`{"handler":"serialize","timeout":"3s","engine":{"engine":"etcd","endpoints":["%s"],"ttl":%q}}`, strings.Join(endpoints, `","`), ttl)
	}
	inner := map[string]string{
		"ttl":          handler("4s", m.URL, another),
		"order":        handler("3s", another, m.URL),
		"both":         handler("7s", another, m.URL),
		"member-twice": handler("3s", another, m.URL, another),
	}
	var routes []string
	for name, inside := range inner {
		routes = append(routes, fmt.Sprintf(`{"match":[{"path":["/%s"]}],"handle":[%s,%s,{"handler":"static_response","body":"{http.serialize.token}"}]}`,
			name, handler("3s", m.URL, another), inside))
	}
	addr, file := testcaddy.ReserveAddr(t), filepath.Join(testcaddy.TempDir(t), "caddy.json")
	testcaddy.WriteFile(t, file, fmt.Sprintf(`{"admin":{"disabled":true},"apps":{"http":{"servers":{"site":{
		"listen":[%q],"automatic_https":{"disable":true},"routes":[%s]}}}}}`, addr, strings.Join(routes, ",")))
	testcaddy.StartProcess(t, testcaddy.Command(t, "run", "--config", file)).AwaitText("serving initial configuration")
	awaitLeases(t, m.Client(t), 5) // one for each way to write the settings
	for name := range inner {
		t.Run(name, func(t *testing.T) {
			if a := testcaddy.Get(t, "http://"+addr+"/"+name); a.StatusCode != http.StatusOK {
				t.Errorf("%s %s: the request waited for itself", a.Status, a.Text)
			}
		})
	}
}
