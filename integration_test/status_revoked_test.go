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
// page, the list and the answer to an eviction say so. Bugs: none did, and nobody waited;
// the page did not name hold_timeout for a browser that may get the waiting page.
func TestRevokedTurnsAreTold(t *testing.T) {
	for name, waitingPage := range map[string]string{"without a page": "", "with a page": "waiting_page"} {
		t.Run(name, func(t *testing.T) { wantRevocationTold(t, waitingPage) })
	}
}

func wantRevocationTold(t *testing.T, waitingPage string) {
	t.Parallel()
	application, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	const says = ", past hold_timeout, revoked "
	wait.Until(t, "the page tells of the revocation", func() bool {
		page := c.get("/queues").Text
		return strings.Contains(page, "inside for ") && strings.Contains(page, says) && strings.Contains(page, "read_timeout")
	})
	if out, errs, code := output(t, nil, "serialize", "queues", "--address", c.Admin); code != 0 || !strings.Contains(out, "inside, revoked ") {
		t.Errorf("queues: exit code %d: %s%s", code, out, errs)
	}
	token := c.queue("a_").Tickets[0].Token
	out, errs, code := output(t, nil, "serialize", "evict", "--address", c.Admin, "--prefix", "a_", "--force", token)
	if code != 0 || !strings.Contains(out, "the turn ends only when its handlers return") || !strings.Contains(out, "read_timeout") {
		t.Errorf("evict: exit code %d: %s%s", code, out, errs)
	}
	check(t, connection.Close())
	check(t, application.Close())
	testcaddy.Await(t, answer)
	c.awaitQueue("a_", 0, 0)
}
