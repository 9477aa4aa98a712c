package test

import (
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A ticket of another Caddy that is stopped: the admin API says that it does not answer.
// Bug: it said that the request was cancelled.
func TestEvictFromStoppedCaddy(t *testing.T) {
	m, upstream := testetcd.Start(t), testcaddy.NewGatedUpstream(t)
	start := func() (*testcaddy.Server, string) {
		addr := testcaddy.ReserveAddr(t)
		return testcaddy.Start(t, site(addr, "serialize {\nprefix a_\nengine etcd {\nendpoints "+m.URL+"\nttl 1m\n}\n}\nreverse_proxy "+upstream.Addr)), addr
	}
	stopped, addr := start()
	other, _ := start()
	answer := testcaddy.Send(t, http.MethodGet, "http://"+addr, "")
	inside := upstream.Next()
	awaitTickets(t, other, 1)
	q := queues(t, other)[0]
	path := "/serialize/queues/" + url.PathEscape(q.Path+"/"+q.Prefix) + "/" + q.Tickets[0].Token

	stopped.Signal(syscall.SIGSTOP)
	a := other.API(http.MethodDelete, path, "")
	stopped.Signal(syscall.SIGCONT)
	if a.StatusCode != http.StatusGatewayTimeout || !strings.Contains(a.Text, "does not answer") {
		t.Errorf("while its process is stopped: %s %s", a.Status, a.Text)
	}
	// It obeys once it continues.
	if a := testcaddy.Await(t, answer); a.StatusCode == http.StatusOK {
		t.Errorf("the evicted request was answered with %s", a.Status)
	}
	inside.Leave()
}
