package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// queues reads the queues from the admin API.
func queues(t *testing.T, caddy *testcaddy.Server) (queues []serializer.QueueState) {
	t.Helper()
	a := testcaddy.Get(t, "http://"+caddy.Admin+"/serialize/queues")
	if err := json.Unmarshal([]byte(a.Text), &queues); err != nil {
		t.Fatalf("%v in %s", err, a.Text)
	}
	return queues
}

// awaitTickets waits until all queues together have a number of tickets.
func awaitTickets(t *testing.T, caddy *testcaddy.Server, want int) {
	t.Helper()
	wait.Eventually(t, fmt.Sprintf("there are %d tickets", want), func() error {
		n := 0
		for _, q := range queues(t, caddy) {
			n += len(q.Tickets)
		}
		if n != want {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// A queue stays the same when a reload changes its engine to etcd or from etcd. The
// requests of the new engine enter after those of the old one.
func TestReloadToAnotherEngine(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"etcd to memory": {"etcd", "memory"},
		"memory to etcd": {"memory", "etcd"},
		"etcd to file":   {"etcd", "file"},
		"file to etcd":   {"file", "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			m, upstream := testetcd.Start(t), testcaddy.NewGatedUpstream(t)
			etcd, addr, dir := m.Client(t), testcaddy.ReserveAddr(t), testcaddy.TempDir(t)
			config := func(engine string) string {
				text := "engine " + engine
				if engine == "etcd" {
					text = etcdEngine(m)
				}
				return site(addr, fmt.Sprintf("serialize {\npath %s\n%s\n}\nreverse_proxy %s", dir, text, upstream.Addr))
			}
			caddy := testcaddy.Start(t, config(c.before))
			if c.before == "etcd" {
				awaitLeases(t, etcd, 1)
			}
			var answers []<-chan testcaddy.Answer
			send := func(name string) {
				answers = append(answers, testcaddy.Send(t, http.MethodGet, "http://"+addr+"/"+name, ""))
			}
			send("1")
			visitor := upstream.NextNamed("1")
			caddy.Reload(config(c.after))
			awaitLeases(t, etcd, 1)
			for n, name := range []string{"2", "3"} {
				send(name)
				awaitTickets(t, caddy, n+2)
			}
			for _, name := range []string{"2", "3"} {
				visitor.Leave()
				visitor = upstream.NextNamed(name)
			}
			visitor.Leave()
			for _, a := range answers {
				if a := testcaddy.Await(t, a); a.StatusCode != http.StatusOK {
					t.Errorf("answered with %s", a.Status)
				}
			}
			if most := upstream.Most(); most > 1 {
				t.Errorf("%d were inside together", most)
			}
		})
	}
}

// Blocks with the same namespace and different ttl have separate engines, each with a
// lease. Bug: the admin API listed each queue once for each of them.
func TestQueueOfTwoEnginesListedOnce(t *testing.T) {
	m, upstream, addr := testetcd.Start(t), testcaddy.NewGatedUpstream(t), testcaddy.ReserveAddr(t)
	block := func(path, ttl string) string {
		return fmt.Sprintf("handle %s {\nserialize {\nprefix two_\nengine etcd {\nendpoints %s\nttl %s\n}\n}\nreverse_proxy %s\n}\n", path, m.URL, ttl, upstream.Addr)
	}
	caddy := testcaddy.Start(t, site(addr, block("/a", "3s")+block("/b", "4s")))
	awaitLeases(t, m.Client(t), 2)
	var answers []<-chan testcaddy.Answer
	for i, path := range []string{"/a", "/b"} {
		answers = append(answers, testcaddy.Send(t, http.MethodGet, "http://"+addr+path, ""))
		awaitTickets(t, caddy, i+1)
	}
	listed := queues(t, caddy)
	if len(listed) != 1 || listed[0].Prefix != "two_" || listed[0].Inside != 1 || listed[0].Waiting != 1 {
		t.Errorf("listed as %+v", listed)
	}
	for _, ticket := range listed[0].Tickets {
		if ticket.Request == nil {
			t.Errorf("ticket %s is listed without its request", ticket.Token)
		}
	}
	for _, a := range answers {
		upstream.Next().Leave()
		if a := testcaddy.Await(t, a); a.StatusCode != http.StatusOK {
			t.Errorf("answered with %s", a.Status)
		}
	}
}
