package test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// Caddys come before their cluster, and share the queue.
func TestCaddy(t *testing.T) {
	t.Parallel()
	m := testetcd.Prepare(t, testetcd.Own, 1)[0]
	testcaddy.TestEngine(t, "etcd {\nendpoints "+m.URL+"\nttl 3s\n}", m.Run)
}

// Visits end with their lease.
func TestLostVisits(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	testcaddy.TestLostVisits(t, "etcd {\nendpoints http://SERVER\nttl 3s\n}", strings.TrimPrefix(m.URL, "http://"))
}

// Handlers with the same cluster, namespace and prefix share a queue, even if the ttl or
// the order of members differs. Bug: a request that passed two such handlers waited for
// itself until its timeout.
func TestNestedWithOtherSettings(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
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
	addr, file := testprocess.FreeAddr(t), filepath.Join(testcaddy.TempDir(t), "caddy.json")
	testcaddy.WriteFile(t, file, fmt.Sprintf(`{"admin":{"disabled":true},"apps":{"http":{"servers":{"site":{
		"listen":[%q],"automatic_https":{"disable":true},"routes":[%s]}}}}}`, addr, strings.Join(routes, ",")))
	testprocess.Start(t, testcaddy.Command(t, "run", "--config", file)).AwaitText("serving initial configuration")
	for name := range inner {
		t.Run(name, func(t *testing.T) {
			if a := testcaddy.Get(t, "http://"+addr+"/"+name); a.StatusCode != http.StatusOK {
				t.Errorf("%s %s: the request waited for itself", a.Status, a.Text)
			}
		})
	}
}
