package redis

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

// startServer starts a server at an address.
func startServer(t testing.TB, address string, args ...string) *testprocess.Process {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	server := testprocess.Start(t, exec.Command("redis-server", append([]string{"--bind", "127.0.0.1", "--port", port, "--save", ""}, args...)...))
	server.AwaitText("Ready to accept connections")
	return server
}

// Caddys come before their server, and share the queue.
func TestCaddy(t *testing.T) {
	t.Parallel()
	redis := testprocess.FreeAddr(t)
	testcaddy.TestEngine(t, "redis {\naddress "+redis+"\nttl 3s\n}", func() { startServer(t, redis) })
}

// Visits end with their lease.
func TestLostVisits(t *testing.T) {
	t.Parallel()
	redis := testprocess.FreeAddr(t)
	startServer(t, redis)
	testcaddy.TestLostVisits(t, "redis {\naddress SERVER\nttl 3s\n}", redis)
}

func site(addr, redis, handler string) string {
	return fmt.Sprintf("http://%s {\nserialize {\ntimeout 20s\nengine redis {\naddress %s\nttl 2s\n}\n}\n%s\n}\n", addr, redis, handler)
}

// silentServer takes connections, and answers nothing.
func silentServer(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// What a load, a reload and a stop cost beside silent servers does not grow with the lines. Bug:
// 20 namespaces were opened one after the other, and no site was served for 40 s; 4 of them
// and 10 lines with lock files in one directory reloaded in 44 s; 5 lines ended in 5 s.
func TestSilentServers(t *testing.T) {
	servers := []string{silentServer(t), silentServer(t), silentServer(t), silentServer(t)}
	addr := testprocess.FreeAddr(t)
	config := func(lines int, namespace string) string {
		var text strings.Builder
		fmt.Fprintf(&text, "{\nadmin {$ADMIN}\n}\nhttp://%s {\n", addr)
		for i := range lines {
			fmt.Fprintf(&text, "handle /r%d {\nserialize {\nprefix r%d_\nengine redis {\naddress %s\nnamespace %s%d\n}\n}\nrespond ok\n}\n",
				i, i, servers[i%len(servers)], namespace, i)
			fmt.Fprintf(&text, "handle /f%d {\nserialize {\nprefix f%d_\n}\nrespond %s\n}\n", i, i, namespace)
		}
		return text.String() + "}\n"
	}
	took := func(what string, f func()) (d time.Duration) {
		begun := time.Now()
		f()
		d = time.Since(begun)
		t.Logf("%s: %.1f s", what, d.Seconds())
		return d
	}
	var one []time.Duration
	for _, lines := range []int{1, 50} {
		var c *testcaddy.Server
		costs := []time.Duration{
			took(fmt.Sprintf("load of %d", lines), func() { c = testcaddy.Start(t, config(lines, "a")) }),
			took("reload with other namespaces", func() {
				if err := c.Load("text/caddyfile", config(lines, "b")); err != nil {
					t.Fatal(err)
				}
			}),
			took("stop", func() {
				c.Signal(os.Interrupt)
				c.AwaitEnd()
			}),
		}
		for i := range one {
			if costs[i] > one[i]+3*time.Second {
				t.Errorf("%d lines cost %s, and one costs %s", lines, costs[i], one[i])
			}
		}
		one = costs
	}
}

// Bug: while the server was silent, a reload that changed the namespace of a queue in use
// warned of nothing, and both queues served.
func TestSilentServerLeftOut(t *testing.T) {
	t.Parallel()
	redis, addr, upstream := testprocess.FreeAddr(t), testprocess.FreeAddr(t), testcaddy.NewGatedUpstream(t)
	process := startServer(t, redis)
	config := "{\nadmin {$ADMIN}\n}\n" + site(addr, redis, "reverse_proxy "+upstream.Addr)
	c := testcaddy.Start(t, config)
	answer := testcaddy.Send(t, http.MethodGet, "http://"+addr, "")
	inside := upstream.Next()
	process.Signal(syscall.SIGSTOP)
	if err := c.Load("text/caddyfile", strings.Replace(config, "ttl 2s", "ttl 2s\nnamespace other", 1)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the warning", func() bool {
		return strings.Contains(c.Log.String(), "the new configuration does not have a queue that is in use")
	})
	process.Signal(syscall.SIGCONT)
	inside.Leave()
	testcaddy.Await(t, answer)
}

// A server that drops keys is refused when the configuration is loaded.
func TestCaddyRefuses(t *testing.T) {
	t.Parallel()
	redis := testprocess.FreeAddr(t)
	startServer(t, redis, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	file := testcaddy.TempDir(t) + "/Caddyfile"
	testcaddy.WriteFile(t, file, "{\nadmin off\n}\n"+site(testprocess.FreeAddr(t), redis, "respond ok"))
	out, err := testcaddy.Command(t, "run", "--config", file, "--adapter", "caddyfile").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "with maxmemory-policy allkeys-lru, it drops keys") {
		t.Errorf("%v: %s", err, out)
	}
}
