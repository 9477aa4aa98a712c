package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// upstream holds each request until it is released.
type upstream struct {
	*httptest.Server
	entered chan string // paths
	release chan struct{}
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{entered: make(chan string, 10), release: make(chan struct{})}
	u.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		u.entered <- r.URL.Path
		select {
		case <-u.release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(u.Close)
	return u
}

// next receives a value that is sure to come.
func next[T any](t *testing.T, values <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(time.Minute):
		t.Fatal("waited for a minute")
	}
	return value
}

// A queue stays the same when a reload takes its engine to etcd or away from it:
// the requests of the new engine enter after those of the old one.
func TestReloadToAnotherEngine(t *testing.T) {
	dir, program := buildCaddy(t)
	for i, c := range []struct{ before, after string }{
		{etcdEngine, "engine memory"},
		{"engine memory", etcdEngine},
		{etcdEngine, "engine file"},
		{"engine file", etcdEngine},
	} {
		t.Run(c.before[:11]+" to "+c.after[:11], func(t *testing.T) {
			m, u := startEtcd(t), newUpstream(t)
			etcdClient := m.client(t)
			leased := func() bool { return leases(t, etcdClient) == 1 }
			site := func(engine string) string {
				return fmt.Sprintf("serialize {\npath %s\nprefix r%d_\n%s\n}\nreverse_proxy %s", dir, i, engine, u.Listener.Addr())
			}
			caddy := startCaddy(t, program, dir, fmt.Sprint("c", i), site(c.before), m.url)
			answers := make(chan int, 3)
			if c.before == etcdEngine {
				waitUntil(t, "there is a lease", leased)
			}
			caddy.send("/1", answers)
			next(t, u.entered)
			caddy.reload(t, program, site(c.after))
			waitUntil(t, "there is a lease", leased)
			for n := range 2 {
				caddy.send(fmt.Sprintf("/%d", n+2), answers)
				waitUntil(t, "the request waits", func() bool { return caddy.tickets(t) == n+2 })
			}
			for n := range 3 {
				if len(u.entered) > 0 {
					t.Fatalf("%s entered beside another request", <-u.entered)
				}
				u.release <- struct{}{}
				if status := next(t, answers); status != http.StatusOK {
					t.Errorf("answered with %d", status)
				}
				if n == 2 {
					break
				}
				if path, want := next(t, u.entered), fmt.Sprintf("/%d", n+2); path != want {
					t.Errorf("%s entered, want %s", path, want)
				}
			}
		})
	}
}

// send sends a request and passes its status on, 0 for none.
func (c *caddyProcess) send(path string, answers chan<- int) {
	go func() {
		answer, err := c.client.Get("http://site" + path)
		if err != nil {
			answers <- 0
			return
		}
		_ = answer.Body.Close() // the status is all that counts
		answers <- answer.StatusCode
	}()
}

// tickets counts the tickets of all queues.
func (c *caddyProcess) tickets(t *testing.T) (n int) {
	t.Helper()
	for _, q := range c.queues(t) {
		n += len(q.Tickets)
	}
	return n
}

// Blocks on one namespace that differ in ttl are engines of their own, each with a
// lease. The admin API listed each queue once for each of them.
func TestQueueOfTwoEnginesListedOnce(t *testing.T) {
	dir, program := buildCaddy(t)
	m := startEtcd(t)
	u := newUpstream(t)
	block := func(path, ttl string) string {
		return fmt.Sprintf(`handle %s {
	serialize {
		prefix two_
		engine etcd {
			endpoints {env.ORDERLY_ETCD}
			ttl %s
		}
	}
	reverse_proxy %s
}
`, path, ttl, u.Listener.Addr())
	}
	caddy := startCaddy(t, program, dir, "t", block("/a", "3s")+block("/b", "4s"), m.url)
	c := m.client(t)
	waitUntil(t, "both engines have a lease", func() bool { return leases(t, c) == 2 })
	answers := make(chan int, 2)
	for i, path := range []string{"/a", "/b"} {
		caddy.send(path, answers)
		waitUntil(t, "the request has its ticket", func() bool { return caddy.tickets(t) == i+1 })
	}
	queues := caddy.queues(t)
	if len(queues) != 1 || queues[0].Prefix != "two_" || queues[0].Inside != 1 || queues[0].Waiting != 1 {
		t.Errorf("listed as %+v", queues)
	}
	for _, ticket := range queues[0].Tickets {
		if ticket.Request == nil {
			t.Errorf("ticket %s is listed without its request", ticket.Token)
		}
	}
	for range 2 {
		next(t, u.entered)
		u.release <- struct{}{}
		if status := next(t, answers); status != http.StatusOK {
			t.Errorf("answered with %d", status)
		}
	}
}
