package test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// site is a Caddyfile with one site.
func site(addr, directives string) string { return "http://" + addr + " {\n" + directives + "\n}\n" }

// If its cluster is unreachable, Caddy loads its configuration and refuses requests with
// 503. It serves once the cluster is reachable. Several Caddys share the queue. A reload
// keeps the lease, and the end revokes it.
func TestCaddy(t *testing.T) {
	t.Parallel()
	m := testetcd.New(t)
	directives := func(timeout string) string {
		return "serialize {\ntimeout " + timeout + "\nengine etcd {\nendpoints " + m.URL + "\nttl 3s\n}\n}\nrespond {http.serialize.token}"
	}
	addrs := []string{testcaddy.ReserveAddr(t), testcaddy.ReserveAddr(t)}
	var caddys []*testcaddy.Server
	for _, addr := range addrs {
		caddys = append(caddys, testcaddy.Start(t, site(addr, directives("5s"))))
	}
	if a := testcaddy.Get(t, "http://"+addrs[0]); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without etcd: %s %s", a.Status, a.Text)
	}

	m.Start(t)
	c := m.Client(t)
	var last uint64
	for _, i := range []int{0, 1, 0} {
		wait.Eventually(t, "the Caddy serves", func() error {
			a := testcaddy.Get(t, "http://"+addrs[i])
			if a.StatusCode != http.StatusOK {
				return fmt.Errorf("%s", a.Status)
			}
			last = greater(t, a.Text, last)
			return nil
		})
	}

	awaitLeases(t, c, 2)
	if err := caddys[0].Load("text/caddyfile", "{\nadmin {$ADMIN}\n}\n"+site(addrs[0], directives("6s"))); err != nil {
		t.Fatal(err)
	}
	testcaddy.AwaitOneListener(t, addrs[0])
	a := testcaddy.Get(t, "http://"+addrs[0])
	if a.StatusCode != http.StatusOK {
		t.Errorf("after a reload: %s", a.Status)
	}
	greater(t, a.Text, last)
	if n := len(testetcd.Leases(t, c)); n != 2 {
		t.Errorf("%d leases after a reload; want 2", n)
	}

	for _, caddy := range caddys {
		caddy.Signal(os.Interrupt)
		caddy.AwaitEnd()
	}
	if n := len(testetcd.Leases(t, c)); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// greater parses a token, and checks that it has grown.
func greater(t *testing.T, text string, last uint64) uint64 {
	t.Helper()
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token <= last {
		t.Errorf("token %q after %d", text, last)
	}
	return token
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
