package postgres

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

// site is a Caddyfile with one site.
func site(addr, directives string) string { return "http://" + addr + " {\n" + directives + "\n}\n" }

func queue(server *testpostgres.Server, ttl, more string) string {
	return "serialize {\nprefix a_\n" + more + "\nengine postgres {\nurl " + server.URL() + "\nttl " + ttl + "\n}\n}\n"
}

func awaitSessions(t *testing.T, server *testpostgres.Server, want string) {
	t.Helper()
	wait.Until(t, "there are "+want+" sessions", func() bool {
		n, err := server.TryQuery("orderly", "SELECT count(*) FROM orderly_sessions")
		return err == nil && n == want
	})
}

// If its server is unreachable, Caddy loads its configuration and refuses requests with
// 503. It serves once the server is reachable. Several Caddys share the queue. A reload
// keeps the lease, and the end of Caddy ends it.
func TestCaddy(t *testing.T) {
	server := testpostgres.Start(t)
	server.Stop()
	directives := func(timeout string) string {
		return queue(server, "3s", "timeout "+timeout) + "respond {http.serialize.token}"
	}
	addrs := []string{testcaddy.ReserveAddr(t), testcaddy.ReserveAddr(t)}
	var caddys []*testcaddy.Server
	for _, addr := range addrs {
		caddys = append(caddys, testcaddy.Start(t, site(addr, directives("5s"))))
	}
	if a := testcaddy.Get(t, "http://"+addrs[0]); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a server: %s %s", a.Status, a.Text)
	}
	server.Run()
	var last uint64
	for _, i := range []int{0, 1, 0} {
		wait.Eventually(t, "the Caddy serves", func() error {
			a := testcaddy.Get(t, "http://"+addrs[i])
			token, err := strconv.ParseUint(a.Text, 10, 64)
			if a.StatusCode == http.StatusOK && (err != nil || token <= last) {
				t.Errorf("token %q after %d", a.Text, last)
			}
			last = max(last, token)
			return err
		})
	}
	awaitSessions(t, server, "2")
	if err := caddys[0].Load("text/caddyfile", "{\nadmin {$ADMIN}\n}\n"+site(addrs[0], directives("6s"))); err != nil {
		t.Fatal(err)
	}
	if a := testcaddy.Get(t, "http://"+addrs[0]); a.StatusCode != http.StatusOK {
		t.Errorf("after a reload: %s", a.Status)
	}
	awaitSessions(t, server, "2")
	for _, caddy := range caddys {
		caddy.Signal(os.Interrupt)
		caddy.AwaitEnd()
	}
	awaitSessions(t, server, "0")
}

// A queue of two engines with different settings is one queue, listed once. A stopped Caddy
// does not answer to an eviction, and obeys when it continues.
func TestListAndEvict(t *testing.T) {
	server, upstream := testpostgres.Start(t), testcaddy.NewGatedUpstream(t)
	start := func() (*testcaddy.Server, string) {
		addr := testcaddy.ReserveAddr(t)
		inner := "handle /a {\n" + queue(server, "50s", "") + "reverse_proxy " + upstream.Addr + "\n}\n"
		return testcaddy.Start(t, site(addr, queue(server, "1m", "")+inner)), addr
	}
	stopped, addr := start()
	other, _ := start()
	answer := testcaddy.Send(t, http.MethodGet, "http://"+addr+"/a", "")
	inside := upstream.Next()
	var queues []serializer.QueueState
	wait.Until(t, "the other one lists the ticket, once", func() bool {
		a := testcaddy.Get(t, "http://"+other.Admin+"/serialize/queues")
		return json.Unmarshal([]byte(a.Text), &queues) == nil && len(queues) == 1 && len(queues[0].Tickets) == 1
	})
	path := "/serialize/queues/" + url.PathEscape(queues[0].Path+"/"+queues[0].Prefix) + "/" + queues[0].Tickets[0].Token
	stopped.Signal(syscall.SIGSTOP)
	wait.Until(t, "all its threads have stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", stopped.PID))
		return !slices.ContainsFunc(threads, func(file string) bool {
			text, _ := os.ReadFile(file)
			return !strings.Contains(string(text), ") T ")
		})
	})
	a := other.API(http.MethodDelete, path, "")
	stopped.Signal(syscall.SIGCONT)
	if a.StatusCode != http.StatusGatewayTimeout || !strings.Contains(a.Text, "does not answer") {
		t.Errorf("while its process is stopped: %s %s", a.Status, a.Text)
	}
	if a := testcaddy.Await(t, answer); a.StatusCode == http.StatusOK {
		t.Errorf("the evicted request was answered with %s", a.Status)
	}
	inside.Leave()
}

// Clients of two Caddys take turns of a millisecond, for a second. The test prints the rate.
func TestTurns(t *testing.T) {
	server := testpostgres.Start(t, "fsync=on")
	var inside sync.Mutex
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if !inside.TryLock() {
			t.Error("two are inside")
			return
		}
		defer inside.Unlock()
		time.Sleep(time.Millisecond)
	}))
	t.Cleanup(app.Close)
	var addrs []string
	for range 2 {
		addr := testcaddy.ReserveAddr(t)
		addrs = append(addrs, addr)
		testcaddy.Start(t, site(addr, queue(server, "3s", "")+"reverse_proxy "+app.Listener.Addr().String()))
		wait.Until(t, "the Caddy serves", func() bool { return testcaddy.Get(t, "http://"+addr).StatusCode == http.StatusOK })
	}
	var turns [16]int
	var clients sync.WaitGroup
	start := time.Now()
	for i := range turns {
		clients.Go(func() {
			for time.Since(start) < time.Second {
				if a, err := http.Get("http://" + addrs[i%2]); err == nil {
					a.Body.Close()
					turns[i]++
				}
			}
		})
	}
	clients.Wait()
	total := 0
	for _, n := range turns {
		total += n
	}
	t.Logf("%.0f turns a second", float64(total)/time.Since(start).Seconds())
}
