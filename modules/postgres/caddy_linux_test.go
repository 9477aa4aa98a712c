package postgres

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
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

// Caddys come before their server, and share the queue.
func TestCaddy(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	server.Stop()
	testcaddy.TestEngine(t, "postgres {\nurl "+server.URL()+"\nttl 3s\n}", server.Run)
}

// A queue of two engines with different settings is one queue, listed once. A stopped Caddy
// does not answer to an eviction, and obeys when it continues.
func TestListAndEvict(t *testing.T) {
	server, upstream := testpostgres.Start(t), testcaddy.NewGatedUpstream(t)
	start := func() (*testcaddy.Server, string) {
		addr := testprocess.FreeAddr(t)
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
