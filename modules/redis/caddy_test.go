package redis

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startServer starts a server at an address.
func startServer(t testing.TB, address string, args ...string) *os.Process {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	dir, err := os.MkdirTemp("", "redis-test")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", dir}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		os.RemoveAll(dir)
	})
	wait.Eventually(t, "the server answers", func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	return cmd.Process
}

func site(addr, redis, handler string) string {
	return fmt.Sprintf("http://%s {\nserialize {\ntimeout 20s\nengine redis {\naddress %s\nttl 2s\n}\n}\n%s\n}\n", addr, redis, handler)
}

// ticket sends a request, and returns its token.
func ticket(t *testing.T, addr string) (token uint64) {
	t.Helper()
	wait.Eventually(t, "the Caddy serves", func() (err error) {
		a := testcaddy.Get(t, "http://"+addr)
		if a.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", a.Status)
		}
		token, err = strconv.ParseUint(a.Text, 10, 64)
		return err
	})
	return token
}

// Without its server, Caddy loads its configuration, and refuses requests with 503. It serves
// once the server can be reached. Several Caddys share the queue, also after a reload.
func TestCaddy(t *testing.T) {
	t.Parallel()
	redis, addrs := freeAddress(t), []string{testcaddy.ReserveAddr(t), testcaddy.ReserveAddr(t)}
	const handler = "respond {http.serialize.token}"
	var caddys []*testcaddy.Server
	for _, addr := range addrs {
		caddys = append(caddys, testcaddy.Start(t, site(addr, redis, handler)))
	}
	if a := testcaddy.Get(t, "http://"+addrs[0]); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without Redis: %s %s", a.Status, a.Text)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(caddys[0].Log.String()), "\n") {
		if !json.Valid([]byte(line)) { // bug: a library wrote raw lines past Caddy's log
			t.Errorf("not an entry of Caddy's log: %s", line)
		}
	}
	startServer(t, redis)
	var last uint64
	for _, i := range []int{0, 1, 0} {
		token := ticket(t, addrs[i])
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
	}
	if err := caddys[0].Load("text/caddyfile", "{\nadmin {$ADMIN}\n}\n"+site(addrs[0], redis, handler+" 200")); err != nil {
		t.Fatal(err)
	}
	if token := ticket(t, addrs[0]); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
	for _, caddy := range caddys {
		caddy.Signal(os.Interrupt)
		caddy.AwaitEnd()
	}
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
	addr := testcaddy.ReserveAddr(t)
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
	redis, addr, upstream := freeAddress(t), testcaddy.ReserveAddr(t), testcaddy.NewGatedUpstream(t)
	process := startServer(t, redis)
	config := "{\nadmin {$ADMIN}\n}\n" + site(addr, redis, "reverse_proxy "+upstream.Addr)
	c := testcaddy.Start(t, config)
	answer := testcaddy.Send(t, http.MethodGet, "http://"+addr, "")
	inside := upstream.Next()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.Load("text/caddyfile", strings.Replace(config, "ttl 2s", "ttl 2s\nnamespace other", 1)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the warning", func() bool {
		return strings.Contains(c.Log.String(), "the new configuration does not have a queue that is in use")
	})
	_ = process.Signal(syscall.SIGCONT)
	inside.Leave()
	testcaddy.Await(t, answer)
}

// A Caddy that is killed with a request inside leaves the queue to the other one, which
// lists the tickets of both.
func TestCaddyKilled(t *testing.T) {
	t.Parallel()
	redis, upstream := freeAddress(t), testcaddy.NewGatedUpstream(t)
	startServer(t, redis)
	addrs := []string{testcaddy.ReserveAddr(t), testcaddy.ReserveAddr(t)}
	var caddys []*testcaddy.Server
	var answers []<-chan testcaddy.Answer
	for i, addr := range addrs {
		caddys = append(caddys, testcaddy.Start(t, site(addr, redis, "reverse_proxy "+upstream.Addr)))
		answers = append(answers, testcaddy.Send(t, http.MethodGet, "http://"+addr, ""))
		if i == 0 {
			upstream.Next()
		}
	}
	wait.Until(t, "both tickets are listed", func() bool {
		var queues []serializer.QueueState
		text := testcaddy.Get(t, "http://"+caddys[1].Admin+"/serialize/queues").Text
		return json.Unmarshal([]byte(text), &queues) == nil && len(queues) == 1 && queues[0].Path == "redis:orderly" && len(queues[0].Tickets) == 2
	})
	killed := time.Now()
	caddys[0].Signal(os.Kill)
	upstream.Next().Leave()
	if took := time.Since(killed); took > 4*time.Second {
		t.Errorf("the next request was at the upstream after %s", took)
	}
	if a := testcaddy.Await(t, answers[1]); a.StatusCode != http.StatusOK {
		t.Errorf("answered with %s", a.Status)
	}
}

// A server that drops keys, or belongs to a cluster, is refused when the configuration is loaded.
func TestCaddyRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"with maxmemory-policy allkeys-lru, it drops keys":                             {"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"},
		"it belongs to a cluster; expected a single server, or a master with replicas": {"--cluster-enabled", "yes"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			redis := freeAddress(t)
			startServer(t, redis, args...)
			file := testcaddy.TempDir(t) + "/Caddyfile"
			testcaddy.WriteFile(t, file, "{\nadmin off\n}\n"+site(testcaddy.ReserveAddr(t), redis, "respond ok"))
			out, err := testcaddy.Command(t, "run", "--config", file, "--adapter", "caddyfile").CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// Two Caddys with a millisecond inside: how many turns a second.
func TestTurns(t *testing.T) {
	redis := freeAddress(t)
	startServer(t, redis)
	var inside sync.Mutex
	upstream := freeAddress(t)
	server := &http.Server{Addr: upstream, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if !inside.TryLock() {
			t.Error("two are inside")
			return
		}
		time.Sleep(time.Millisecond)
		inside.Unlock()
	})}
	go func() { _ = server.ListenAndServe() }()
	t.Cleanup(func() { server.Close() })
	addrs := []string{testcaddy.ReserveAddr(t), testcaddy.ReserveAddr(t)}
	for _, addr := range addrs {
		testcaddy.Start(t, site(addr, redis, "reverse_proxy "+upstream))
	}
	for _, addr := range addrs {
		wait.Until(t, "the Caddy serves", func() bool { return testcaddy.Get(t, "http://"+addr).StatusCode == http.StatusOK })
	}
	const turns = 300
	var clients sync.WaitGroup
	start := time.Now()
	for i := range 8 {
		clients.Go(func() {
			for range turns / 8 {
				r, err := http.Get("http://" + addrs[i%2])
				if err != nil {
					t.Error(err)
					return
				}
				r.Body.Close()
				if r.StatusCode != http.StatusOK {
					t.Error(r.Status)
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%.0f turns a second", turns/time.Since(start).Seconds())
}
