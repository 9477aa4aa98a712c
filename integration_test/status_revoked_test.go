//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// A FastCGI application goes on when its turn has been revoked, and so does the turn. The
// page, the list, the answer to an eviction and the log say so. Bugs: none did, and nobody
// waited; the log said nothing before the end of the turn, and that might be never;
// the page did not name hold_timeout for a browser that may get the waiting page.
func TestRevokedTurnsAreTold(t *testing.T) {
	t.Parallel()
	for name, waitingPage := range map[string]string{"without a page": "", "with a page": "waiting_page"} {
		t.Run(name, func(t *testing.T) { wantRevocationTold(t, waitingPage) })
	}
}

func wantRevocationTold(t *testing.T, waitingPage string) {
	t.Parallel()
	application, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	c := start(t, setup{site: fmt.Sprintf(`
		serialize_status /queues
		serialize {
			path {$DIR}
			prefix a_
			hold_timeout 1s
			%s
		}
		reverse_proxy %s {
			transport fastcgi
		}`, waitingPage, application.Addr())})
	answer := c.getting("/", "Accept", "text/html")
	connection, err := application.Accept()
	check(t, err)
	const says = ", past hold_timeout, revoked "
	wait.Until(t, "the page says that the turn was revoked", func() bool {
		page := c.get("/queues").Text
		return strings.Contains(page, "inside for ") && strings.Contains(page, says) && strings.Contains(page, "read_timeout")
	})
	c.wantCommand(0, "inside, revoked ", "queues")
	token := c.queue("a_").Tickets[0].Token
	if out := c.wantCommand(0, "the turn ends only when its handlers return", "evict", "--prefix", "a_", "--force", token); !strings.Contains(out, "read_timeout") {
		t.Errorf("evict: %s", out)
	}
	revoked := c.awaitEntryOf("turn revoked")
	ignored := c.awaitEntry("the log says that it is still inside", func(e entry) bool {
		return strings.HasPrefix(e.Text("msg"), "still inside") && strings.Contains(e.Text("msg"), "read_timeout")
	})
	for _, line := range []entry{revoked, ignored} {
		if line["level"] != "warn" || line["queue"] != "a_" || line["token"] != token || !strings.Contains(line.Text("cause"), "hold_timeout") {
			t.Errorf("the log says %v", line)
		}
	}
	check(t, connection.Close())
	check(t, application.Close())
	testcaddy.Await(t, answer)
	c.awaitQueue("a_", 0, 0)
}
