//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Reloads under load with changed settings: no request fails, none overlap, and
// the order goes on.
//
// What Caddy itself loses does not count, for it does so without serialize, too:
// connections that the system had made for the listener of the old configuration
// and that nobody accepted before it was closed. Requests on these reach nobody;
// they are made again.
func TestReloadUnderLoad(t *testing.T) {
	const reloads, clients = 12, 16
	site := func(round int) string {
		return fmt.Sprintf(`
			serialize {
				path {$DIR}
				timeout %ds
				queue_length %d
				error_code %d
				hold_timeout %dm
			}
			reverse_proxy {$BACKEND} {
				header_up X-Token {http.serialize.token}
				header_up X-Round %d
			}`, 60+round, 1000+round, 500+round, 1+round, round)
	}
	b := newBackend(t)
	s := setup{tls: true, backend: b, site: site(0)}
	c := start(t, s)

	var stop atomic.Bool
	var served, unaccepted atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		client := newClient(t, []string{"1.1", "2"}[i%2])
		all.Go(func() {
			for request := 0; !stop.Load(); request++ {
				name := fmt.Sprintf("client%d.%d", i, request)
				r := do(client, "GET", c.url+"/?name="+name, "")
				if r.err != nil && b.visit(name) == nil {
					unaccepted.Add(1)
					continue
				}
				if r.err != nil || r.status != http.StatusOK {
					t.Errorf("%s: %v", name, r)
					return
				}
				served.Add(1)
			}
		})
	}
	for round := 1; round <= reloads; round++ {
		before := served.Load()
		eventually(t, patience, "requests are served", func() bool { return served.Load() >= before+clients || t.Failed() })
		s.site = site(round)
		check(t, c.reload(s))
	}
	last := served.Load()
	eventually(t, patience, "requests are served", func() bool { return served.Load() >= last+clients || t.Failed() })
	stop.Store(true)
	all.Wait()
	b.wantAlone(t)
	b.wantTokensGrow(t)
	c.wantNoTickets()
	if complaints := c.Log.All(func(e entry) bool { return e["level"] == "error" }); len(complaints) > 0 {
		t.Errorf("the log complains: %v", complaints)
	}
	t.Logf("%d reloads, %d requests served, %d not accepted", reloads, served.Load(), unaccepted.Load())
}

// Requests that wait at a reload keep their place, also if the new configuration
// knows nothing of their queue.
func TestReloadKeepsPlaces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, site string }{
		{"same queue", serialized},
		{"no queue", "respond new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := setup{backend: b, site: serialized}
			c := start(t, s)
			holder := c.holder(t)
			waiter := c.getting("/?name=waiter")
			c.awaitTickets(2)
			s.site = test.site
			check(t, c.reload(s))
			next := c.getting("/?name=next")
			if test.site == serialized {
				c.awaitTickets(3)
			} else if r := <-next; r.body != "new" {
				t.Errorf("the new configuration answers %v", r)
			}
			b.wantOrder(t, "holder")
			b.open("holder")
			(<-holder).want(t, http.StatusOK)
			(<-waiter).want(t, http.StatusOK)
			if test.site == serialized {
				(<-next).want(t, http.StatusOK)
				b.wantOrder(t, "holder", "waiter", "next")
			}
			b.wantAlone(t)
			c.wantNoTickets()
		})
	}
}

// A queue that no configuration uses any more gives its files back.
func TestReloadGivesFilesBack(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := setup{backend: b, site: serialized}
	c := start(t, s)
	c.get("/").want(t, http.StatusOK)
	s.site = "respond new"
	check(t, c.reload(s))
	eventually(t, 10*time.Second, "the owner file is gone", func() bool { return len(fileNames(t, c.dir)) <= 1 })
	c.wantOnlyGuard()
}

// A reload that gives a queue another engine let a request in beside the old
// holder. The new one's first waits for the old one's last; and a request that
// comes to both engines of one queue, block in block, passes.
func TestReloadChangesEngine(t *testing.T) {
	t.Parallel()
	site := func(engine string) string {
		return `route {
				serialize {
					path {$DIR}
					engine ` + engine + `
				}
				handle /both* {
					serialize {
						path {$DIR}
						engine file
					}
					reverse_proxy {$BACKEND}
				}
				reverse_proxy {$BACKEND}
			}`
	}
	for _, change := range [][2]string{{"file", "memory"}, {"memory", "file"}} {
		t.Run(change[0]+" to "+change[1], func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := setup{backend: b, site: site(change[0])}
			c := start(t, s)
			answers := []<-chan response{c.getting("/?name=holder&gate")}
			b.awaitEntry(t, "holder")
			answers = append(answers, c.getting("/?name=waiter"))
			c.awaitWaiting(1)
			s.site = site(change[1])
			check(t, c.reload(s))
			for i, name := range []string{"new1", "new2"} {
				answers = append(answers, c.getting("/both?name="+name))
				c.awaitWaiting(2 + i)
			}
			b.open("holder")
			for _, answer := range answers {
				(<-answer).want(t, http.StatusOK)
			}
			b.wantOrder(t, "holder", "waiter", "new1", "new2")
			b.wantAlone(t)
		})
	}
}
