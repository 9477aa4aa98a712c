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
func startServer(t testing.TB, address string, args ...string) {
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
