package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A Caddy whose cluster is not there loads its configuration, refuses requests
// with 503, and serves once the cluster is there. Caddys share the queue; a
// reload keeps the lease, and the end gives it back.
func TestCaddy(t *testing.T) {
	dir, program := buildCaddy(t)
	m := newMember(t)
	const site = "serialize {\ntimeout 5s\n" + etcdEngine + "\n}\nrespond {http.serialize.token}"
	a, b := startCaddy(t, program, dir, "a", site, m.url), startCaddy(t, program, dir, "b", site, m.url)
	if status, body := a.get(t, "/"); status != http.StatusServiceUnavailable {
		t.Errorf("without etcd: %d %s", status, body)
	}

	m.start(t)
	t.Cleanup(m.stop)
	c := m.client(t)
	var last uint64
	for _, caddy := range []*caddyProcess{a, b, a} {
		waitUntil(t, "the Caddy serves", func() bool {
			status, body := caddy.get(t, "/")
			if status == http.StatusOK {
				last = greater(t, body, last)
			}
			return status == http.StatusOK
		})
	}

	for _, line := range []string{
		`caddy_serialize_etcd_lease{path="etcd:orderly"} 1`,
		`caddy_serialize_etcd_leases_lost_total{path="etcd:orderly"} 0`,
		`caddy_serialize_etcd_ttl_seconds{path="etcd:orderly"} 3`,
		`caddy_serialize_etcd_keepalive_age_seconds{path="etcd:orderly"} `,
		`caddy_serialize_etcd_watch_lag_seconds{path="etcd:orderly"} `,
		`caddy_serialize_etcd_member_switches_total{path="etcd:orderly"} `,
	} {
		if text := a.metrics(t); !strings.Contains(text, line) {
			t.Errorf("no metric %s in\n%s", line, text)
		}
	}

	before := leases(t, c)
	a.reload(t, program, strings.Replace(site, "timeout 5s", "timeout 6s", 1))
	status, body := a.get(t, "/")
	if status != http.StatusOK {
		t.Errorf("after a reload: %d", status)
	}
	greater(t, body, last)
	if after := leases(t, c); before != 2 || after != 2 {
		t.Errorf("%d leases before a reload, %d after it; want 2", before, after)
	}

	for _, caddy := range []*caddyProcess{a, b} {
		if err := caddy.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = caddy.cmd.Wait() // Caddy's exit code after an interrupt says nothing
	}
	if n := leases(t, c); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// Two handlers that name the same cluster, namespace and prefix are in one
// queue, though one has another ttl and its members in another order. A request
// that passes both waited for itself until its timeout.
func TestNestedWithOtherSettings(t *testing.T) {
	m := startEtcd(t)
	another := strings.Replace(m.url, "127.0.0.1", "localhost", 1)
	handler := func(engineText, next string) string {
		return fmt.Sprintf(`{"handler":"serialize","timeout":"3s","engine":%s},%s`, engineText, next)
	}
	for name, inner := range map[string]string{
		"ttl":            fmt.Sprintf(`{"engine":"etcd","endpoints":[%q,%q],"ttl":"4s"}`, m.url, another),
		"order":          fmt.Sprintf(`{"engine":"etcd","endpoints":[%q,%q],"ttl":"3s"}`, another, m.url),
		"ttl and order":  fmt.Sprintf(`{"engine":"etcd","endpoints":[%q,%q],"ttl":"7s"}`, another, m.url),
		"a member twice": fmt.Sprintf(`{"engine":"etcd","endpoints":[%q,%q,%q],"ttl":"3s"}`, another, m.url, another),
	} {
		t.Run(name, func(t *testing.T) {
			outer := fmt.Sprintf(`{"engine":"etcd","endpoints":[%q,%q],"ttl":"3s"}`, m.url, another)
			answer := `{"handler":"static_response","body":"{http.serialize.token}"}`
			status, body := serveOnce(t, handler(outer, handler(inner, answer)))
			if status != http.StatusOK {
				t.Errorf("%d %s: the request waited for itself", status, body)
			}
		})
	}
}

// serveOnce loads a configuration with these handlers, in this process, and
// sends one request.
func serveOnce(t *testing.T, handlers string) (status int, body string) {
	t.Helper()
	socket := filepath.Join(shortDir(t), "site")
	config := fmt.Sprintf(`{"admin":{"disabled":true,"config":{"persist":false}},"logging":{"logs":{"default":{"level":"ERROR"}}},
		"apps":{"http":{"servers":{"site":{"listen":["unix/%s"],"automatic_https":{"disable":true},"routes":[{"handle":[%s]}]}}}}}`, socket, handlers)
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &caddyProcess{client: unixClient(socket)}
	return c.get(t, "/")
}

// greater reads a token, and checks that it has grown.
func greater(t *testing.T, text string, last uint64) uint64 {
	t.Helper()
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token <= last {
		t.Errorf("token %q after %d", text, last)
	}
	return token
}

func leases(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	answer, err := c.Leases(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return len(answer.Leases)
}

const (
	caddyCommand = "github.com/orderly-http/caddy-orderly/modules/etcd/cmd/caddy"
	etcdEngine   = "engine etcd {\nendpoints {env.ORDERLY_ETCD}\nttl 3s\n}"
)

// shortDir is a directory for unix sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ord")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// buildCaddy builds Caddy in a directory that is short enough for sockets.
func buildCaddy(t *testing.T) (dir, program string) {
	t.Helper()
	dir = shortDir(t)
	program = filepath.Join(dir, "caddy")
	if text, err := exec.Command("go", "build", "-o", program, caddyCommand).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return dir, program
}

// caddyProcess is a Caddy with one site and its admin API, on unix sockets.
type caddyProcess struct {
	cmd           *exec.Cmd
	config        string
	socket, admin string
	client        *http.Client
}

// startCaddy starts a Caddy whose site has these directives.
func startCaddy(t *testing.T, program, dir, name, site, endpoint string) *caddyProcess {
	t.Helper()
	c := &caddyProcess{
		config: filepath.Join(dir, name+".Caddyfile"),
		socket: filepath.Join(dir, name),
		admin:  filepath.Join(dir, name+".admin"),
	}
	c.client = unixClient(c.socket)
	c.configure(t, site)
	c.cmd = exec.Command(program, "run", "--config", c.config, "--adapter", "caddyfile")
	c.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "ORDERLY_ETCD="+endpoint)
	var output lockedBuffer
	c.cmd.Stderr = &output
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // may have ended
		_ = c.cmd.Wait()
		if t.Failed() {
			t.Logf("Caddy %s said:\n%s", name, output.String())
		}
	})
	waitUntil(t, "Caddy listens", func() bool {
		_, err := os.Stat(c.socket)
		return err == nil
	})
	return c
}

// configure writes the configuration.
func (c *caddyProcess) configure(t *testing.T, site string) {
	t.Helper()
	text := fmt.Sprintf("{\nadmin unix/%s\npersist_config off\n}\nhttp:// {\nbind unix/%s\n%s\n}\n", c.admin, c.socket, site)
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func unixClient(socket string) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

func (c *caddyProcess) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return get(t, c.client, "http://site"+path)
}

func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

// metrics reads them from the admin API.
func (c *caddyProcess) metrics(t *testing.T) string {
	t.Helper()
	_, text := get(t, unixClient(c.admin), "http://localhost/metrics")
	return text
}

// queues reads them from the admin API.
func (c *caddyProcess) queues(t *testing.T) (queues []serializer.QueueState) {
	t.Helper()
	_, text := get(t, unixClient(c.admin), "http://localhost/serialize/queues")
	if err := json.Unmarshal([]byte(text), &queues); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return queues
}

// reload loads another configuration.
func (c *caddyProcess) reload(t *testing.T, program, site string) {
	t.Helper()
	c.configure(t, site)
	reload := exec.Command(program, "reload", "--config", c.config, "--adapter", "caddyfile", "--address", "unix/"+c.admin)
	reload.Env = c.cmd.Env
	if text, err := reload.CombinedOutput(); err != nil {
		t.Fatalf("reload: %v: %s", err, text)
	}
}
