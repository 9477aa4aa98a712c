package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A browser with the waiting page keeps its place in an etcd queue, even if the
// configuration is reloaded.
func TestWaitingPage(t *testing.T) {
	m, upstream := testetcd.Start(t), testcaddy.NewGatedUpstream(t)
	etcd, addrs := m.Client(t), []string{testcaddy.ReserveAddr(t), testcaddy.ReserveAddr(t)}
	config := func(addr string, more string) string {
		return site(addr, fmt.Sprintf("serialize {\nprefix a_\ntimeout 10m\n%s\nwaiting_page {\nafter 0\n}\n%s\n}\nreverse_proxy %s", etcdEngine(m), more, upstream.Addr))
	}
	one, _ := testcaddy.Start(t, config(addrs[0], "")), testcaddy.Start(t, config(addrs[1], ""))
	awaitLeases(t, etcd, 2)
	first := testcaddy.Send(t, http.MethodPost, "http://"+addrs[1]+"/first", "")
	inside := upstream.NextNamed("first")

	cookie := ""
	waits := func() {
		t.Helper()
		a := testcaddy.Get(t, "http://"+addrs[0]+"/mine", "Accept", "text/html", "Cookie", cookie)
		if a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.Text, `"number":1`) || strings.Contains(a.Text, `"Lost":true`) {
			t.Fatalf("answer %s %s; expected the page", a.Status, a.Text)
		}
		cookie, _, _ = strings.Cut(a.Header.Get("Set-Cookie"), ";")
	}
	waits()
	waits()
	one.Reload(config(addrs[0], "hold_timeout 1m"))
	last := testcaddy.Send(t, http.MethodPost, "http://"+addrs[1]+"/last", "")
	awaitTickets(t, one, 3)
	waits()
	inside.Leave()
	testcaddy.Await(t, first)
	wait.Eventually(t, "the turn has come", func() error {
		if all := queues(t, one); len(all) != 1 || all[0].Inside != 1 || all[0].Waiting != 1 {
			return fmt.Errorf("queues %+v", all)
		}
		return nil
	})
	mine := testcaddy.Send(t, http.MethodGet, "http://"+addrs[0]+"/mine", "", "Accept", "text/html", "Cookie", cookie)
	upstream.NextNamed("mine").Leave()
	if a := testcaddy.Await(t, mine); a.StatusCode != http.StatusOK {
		t.Errorf("answer %s", a.Status)
	}
	upstream.NextNamed("last").Leave()
	testcaddy.Await(t, last)
}
