//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
	const reloads, clients = 12, 32
	site := func(round int) string {
		return behindQueue(fmt.Sprintf("timeout %ds\nqueue_length %d\nerror_code %d\nhold_timeout %dm", 60+round, 1000+round, 500+round, 1+round))
	}
	s := setup{tls: true, site: site(0)}
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
				if r.Err != nil && c.Hit(name) == nil {
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
	c.wantAlone()
	c.wantTokensGrow()
	c.awaitTickets(0)
	if complaints := c.Log.All(func(e entry) bool { return e["level"] == "error" }); len(complaints) > 0 {
		t.Errorf("the log complains: %v", complaints)
	}
	t.Logf("%d reloads, %d requests served, %d not accepted", reloads, served.Load(), unaccepted.Load())
}

// Requests that wait during a reload keep their places, even if the new configuration
// does not have their queue. A queue that no configuration uses any more releases its files.
func TestReloadKeepsPlaces(t *testing.T) {
	t.Parallel()
	for _, site := range []string{serialized, "respond new"} {
		t.Run(site, func(t *testing.T) {
			t.Parallel()
			c := startQueue(t, "")
			holder, waiter := c.holder(t), c.waiter("waiter", 2)
			check(t, c.reload(setup{site: site}))
			next := c.getting("/?name=next")
			if site == serialized {
				c.awaitTickets(3)
			} else if r := <-next; r.Text != "new" {
				t.Errorf("the new configuration answers %v", r)
			}
			c.wantOrder("holder")
			c.release(holder)
			c.wantServed(waiter)
			if site == serialized {
				c.wantServed(next)
				c.wantOrder("holder", "waiter", "next")
			} else {
				wait.Until(t, "the owner file is gone", func() bool { return len(fileNames(t, c.dir)) <= 1 })
				c.wantOnlyGuard()
			}
			c.wantAlone()
			c.awaitTickets(0)
		})
	}
}

// An edited prefix or path is another queue. If requests are in the old one, or it is
// paused, a warning names it. Bug: in a pause, nobody is inside, and nothing was said.
func TestReloadLeavesQueueOut(t *testing.T) {
	t.Parallel()
	isWarning := func(e entry) bool {
		return strings.HasPrefix(e.Text("msg"), "the new configuration does not have a queue")
	}
	c := startQueue(t, "prefix old_")
	holder := c.holder(t)
	check(t, c.reload(setup{site: behindQueue("prefix old_") + "\nheader X-Same queue"}))
	check(t, c.reload(setup{site: behindQueue("prefix new_")}))
	if e := c.awaitEntry("the warning", isWarning); e["queue"] != "old_" || e["inside"] != 1.0 || e["paused"] != false {
		t.Errorf("the warning is %v", e)
	}
	c.release(holder)
	check(t, c.reload(setup{site: behindQueue("prefix newer_")}))
	c.pause("newer_", "0")
	waiter := c.getting("/?name=waiter")
	c.awaitQueue("newer_", 0, 1)
	check(t, c.reload(setup{site: behindQueue("prefix newest_")}))
	c.pause("newest_", "0")
	c.pause("newest_*", "0")
	check(t, c.reload(setup{site: behindQueue("prefix a_")}))
	c.resume("newer_")
	c.wantServed(waiter)
	for i, e := range c.Log.All(isWarning)[1:] {
		want := []string{"newer_ 1", "newest_ 0", "newest_* 0"}[i]
		if got := fmt.Sprint(e["queue"], " ", e["waiting"]); got != want || e["inside"] != 0.0 || e["paused"] != true {
			t.Errorf("a warning is %v; expected one of %s", e, want)
		}
	}
	if warnings := c.Log.All(isWarning); len(warnings) != 4 {
		t.Errorf("the warnings are %v", warnings)
	}
}

// What an engine finds is in the log of the configuration that is loaded. Bug: it stayed in
// that of the first one.
func TestReloadMovesEnginesLog(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "prefix a_")
	file := filepath.Join(c.home, "new.log")
	moved := setup{global: "log moved {\noutput file " + file + "\n}", site: behindQueue("prefix a_")}
	check(t, c.reload(moved))
	c.pause("a_", "0")
	wait.Until(t, "the new log says queue paused", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), `"queue paused"`)
	})
}

// awaitStopping waits until Caddy has begun to stop.
func (c *caddy) awaitStopping() {
	c.t.Helper()
	c.awaitEntry("Caddy stops", func(e entry) bool {
		return e.Text("signal") != "" && e.Text("msg") != ""
	})
}

// On stop, waiters are served within the grace period, and nothing is left.
func TestStopServesWaiting(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "grace_period 1m", site: serialized})
	answers := []<-chan testcaddy.Answer{c.holder(t), c.waiter("waiter1", 2), c.waiter("waiter2", 3)}
	c.Signal(syscall.SIGTERM)
	c.awaitStopping()
	c.Open("holder")
	c.wantServed(answers...)
	c.AwaitEnd()
	if c.Err != nil {
		t.Errorf("ended with %v", c.Err)
	}
	c.wantOrder("holder", "waiter1", "waiter2")
	c.wantAlone()
	c.wantOnlyGuard()
}

// After the grace period, waiters are refused and never enter, and holders are revoked.
// Bug: a holder left its ticket and the owner file behind.
func TestStopRefusesWaiting(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "grace_period 300ms", site: serialized})
	holder, waiter := c.holder(t), c.waiter("waiter", 2)
	c.Signal(os.Interrupt) // as Ctrl-C does
	c.AwaitEnd()
	// The process may end before it has sent its answers.
	for _, answer := range []<-chan testcaddy.Answer{holder, waiter} {
		if r := <-answer; r.Err == nil && r.StatusCode < 500 {
			t.Errorf("answered %v", r)
		}
	}
	c.wantOrder("holder")
	c.wantOnlyGuard()
}

// A request that ignores its cancellation leaves its lock file and the owner file behind
// when the process stops, and nothing else. The next process removes both.
func TestStopWithEndlessRequest(t *testing.T) {
	t.Parallel()
	application, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	defer application.Close()
	c := start(t, setup{global: "grace_period 300ms", site: fmt.Sprintf(
		"serialize {\npath {$DIR}\n}\nreverse_proxy /endless %s {\ntransport fastcgi\n}\nreverse_proxy {$UPSTREAM}", application.Addr())})
	endless := c.getting("/endless")
	connection, err := application.Accept()
	check(t, err)
	defer connection.Close()
	waiter := c.waiter("waiter", 2)
	c.Signal(syscall.SIGTERM)
	c.AwaitEnd()
	<-endless
	<-waiter
	c.awaitEntryOf("turn revoked")
	files := fileNames(t, c.dir)
	if len(files) != 3 || len(lockFiles(t, c.dir)) != 1 || !strings.Contains(strings.Join(files, " "), "owner") {
		t.Errorf("left in the lock directory: %q; expected the guard, an owner file and a lock file", files)
	}
	next := c.another()
	next.get("/?name=next").Want(t, http.StatusOK)
	c.wantOrder("next")
	next.Signal(syscall.SIGTERM)
	next.AwaitEnd()
	next.wantOnlyGuard()
}
