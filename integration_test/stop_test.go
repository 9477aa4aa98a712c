//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

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
	c.WantOrder("holder", "waiter1", "waiter2")
	c.WantAlone()
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
	c.WantOrder("holder")
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
	c.WantOrder("next")
	next.Signal(syscall.SIGTERM)
	next.AwaitEnd()
	next.wantOnlyGuard()
}
