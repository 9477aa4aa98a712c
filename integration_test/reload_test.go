//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Reloads under load with changed settings: no request fails, none overlap, and
// the order continues.
//
// What Caddy itself loses does not count, because it does so without serialize, too.
// These are connections to the listener of the old configuration that nobody had accepted
// before it was closed. Requests on these reach nobody; they are made again.
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
			reverse_proxy {$UPSTREAM} {
				header_up X-Token {http.serialize.token}
				header_up X-Round %d
			}`, 60+round, 1000+round, 500+round, 1+round, round)
	}
	upstream := testcaddy.NewUpstream(t)
	s := setup{tls: true, upstream: upstream, site: site(0)}
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
				if r.Err != nil && upstream.Visit(name) == nil {
					unaccepted.Add(1)
					continue
				}
				if r.Err != nil || r.StatusCode != http.StatusOK {
					t.Errorf("%s: %v", name, r)
					return
				}
				served.Add(1)
			}
		})
	}
	for round := 1; round <= reloads; round++ {
		before := served.Load()
		wait.Until(t, "requests are served", func() bool { return served.Load() >= before+clients || t.Failed() })
		s.site = site(round)
		check(t, c.reload(s))
	}
	last := served.Load()
	wait.Until(t, "requests are served", func() bool { return served.Load() >= last+clients || t.Failed() })
	stop.Store(true)
	all.Wait()
	upstream.WantAlone()
	upstream.WantTokensGrow()
	c.wantNoTickets()
	if complaints := c.Log.All(func(e entry) bool { return e["level"] == "error" }); len(complaints) > 0 {
		t.Errorf("the log complains: %v", complaints)
	}
	t.Logf("%d reloads, %d requests served, %d not accepted", reloads, served.Load(), unaccepted.Load())
}

// Requests that wait during a reload keep their places, even if the new configuration
// does not have their queue.
func TestReloadKeepsPlaces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, site string }{
		{"same queue", serialized},
		{"no queue", "respond new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			s := setup{upstream: upstream, site: serialized}
			c := start(t, s)
			holder := c.holder(t)
			waiter := c.getting("/?name=waiter")
			c.awaitTickets(2)
			s.site = test.site
			check(t, c.reload(s))
			next := c.getting("/?name=next")
			if test.site == serialized {
				c.awaitTickets(3)
			} else if r := <-next; r.Text != "new" {
				t.Errorf("the new configuration answers %v", r)
			}
			upstream.WantOrder("holder")
			release(t, upstream, holder)
			(<-waiter).Want(t, http.StatusOK)
			if test.site == serialized {
				(<-next).Want(t, http.StatusOK)
				upstream.WantOrder("holder", "waiter", "next")
			}
			upstream.WantAlone()
			c.wantNoTickets()
		})
	}
}

// A queue that no configuration uses any more releases its files.
func TestReloadGivesFilesBack(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	s := setup{upstream: upstream, site: serialized}
	c := start(t, s)
	c.get("/").Want(t, http.StatusOK)
	s.site = "respond new"
	check(t, c.reload(s))
	wait.Until(t, "the owner file is gone", func() bool { return len(fileNames(t, c.dir)) <= 1 })
	c.wantOnlyGuard()
}

// An edited prefix or path is another queue. If requests are inside the old one, a warning
// names it.
func TestReloadLeavesQueueOut(t *testing.T) {
	t.Parallel()
	const site = "serialize {\npath {$DIR}\nprefix %s\n}\nreverse_proxy {$UPSTREAM}"
	isWarning := func(e entry) bool {
		text, _ := e["msg"].(string)
		return strings.HasPrefix(text, "requests are still inside a queue")
	}
	upstream := testcaddy.NewUpstream(t)
	s := setup{upstream: upstream, site: fmt.Sprintf(site, "old_")}
	c := start(t, s)
	holder := c.holder(t)
	s.site = fmt.Sprintf(site, "old_") + "\nheader X-Same queue"
	check(t, c.reload(s))
	s.site = fmt.Sprintf(site, "new_")
	check(t, c.reload(s))
	if e := c.awaitEntry("the warning", isWarning); e["queue"] != "old_" || e["inside"] != 1.0 {
		t.Errorf("the warning is %v", e)
	}
	release(t, upstream, holder)
	s.site = fmt.Sprintf(site, "newer_")
	check(t, c.reload(s))
	if warnings := c.Log.All(isWarning); len(warnings) != 1 {
		t.Errorf("the warnings are %v", warnings)
	}
}

// Without settings, lock files are in Caddy's data directory, and a refusal has the status
// 503.
func TestDefaults(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: "serialize {\ntimeout 100ms\n}\nreverse_proxy {$UPSTREAM}"})
	holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/?name=holder&gate") })
	if files := lockFiles(t, filepath.Join(c.home, "caddy", "queues")); len(files) != 1 || !strings.HasPrefix(files[0], "serializer_0000") {
		t.Errorf("lock files %q", files)
	}
	c.get("/?name=refused").Want(t, http.StatusServiceUnavailable)
	release(t, upstream, holder)
}

// Bug: a reload to another engine admitted a request beside the old holder. Now it is
// refused while a request is inside, and says what to do: pause, wait, reload. Requests
// that wait for the old engine do not enter beside those of the new one.
func TestReloadChangesEngine(t *testing.T) {
	t.Parallel()
	const site = "serialize {\n path {$DIR}\n engine %s\n timeout 10s\n}\nreverse_proxy {$UPSTREAM}"
	for _, change := range [][2]string{{"file", "memory"}, {"memory", "file"}} {
		t.Run(change[0]+" to "+change[1], func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			s := setup{upstream: upstream, site: fmt.Sprintf(site, change[0])}
			c := start(t, s)
			holder := c.holder(t)
			waiter := c.getting("/?name=waiter")
			c.awaitWaiting(1)
			s.site = fmt.Sprintf(site, change[1])
			if err := c.reload(s); err == nil || !strings.Contains(err.Error(), "pause the queue, wait until nobody is inside") {
				t.Fatalf("the reload said %v", err)
			}
			c.serialize("pause", "--prefix", "serializer_", "--for", "0", "--address", c.Admin)
			release(t, upstream, holder)
			c.serialize("pause", "--prefix", "serializer_", "--for", "0", "--wait", "--address", c.Admin)
			check(t, c.reload(s))
			c.serialize("resume", "--prefix", "serializer_", "--address", c.Admin)
			(<-waiter).Want(t, http.StatusOK)
			c.get("/?name=new").Want(t, http.StatusOK)
			upstream.WantAlone()
		})
	}
	t.Run("two at once", func(t *testing.T) {
		t.Parallel()
		log := startInVain(t, setup{site: "handle /a {\nserialize {\n path {$DIR}\n engine memory\n}\n}\nhandle {\nserialize {\n path {$DIR}\n}\n}"})
		if !strings.Contains(log, "give one of them another prefix") {
			t.Errorf("the log says:\n%s", log)
		}
	})
}
