//go:build unix

package integration_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// wantTurnKept hangs up in the middle of a large body. Meanwhile, an upstream works
// that began at the head and does not read the body. It makes sure that the next
// request enters only once the upstream has ended.
func wantTurnKept(t *testing.T, c *caddy, upstream *testcaddy.Upstream) {
	t.Helper()
	conn := c.dial()
	_, err := io.WriteString(conn, head("slow&work=1s&deaf", 1<<20)+strings.Repeat("x", 100<<10))
	check(t, err)
	upstream.AwaitEntry("slow")
	next := c.getting("/?name=next")
	c.awaitTickets(2)
	check(t, conn.Close())
	(<-next).Want(t, http.StatusOK)
	upstream.WantOrder("slow", "next")
	upstream.WantAlone()
	c.wantNoTickets()
}

// Bug: a client hung up in the middle of a body too large for the buffers. That ended the
// turn while the upstream, which had begun at the head, continued.
func TestClientHangsUpInMidUpload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, buffer, proxy string
		encrypted           bool
	}{
		{"larger than the buffers", "1KiB 4KiB", "", false},
		{"nothing read ahead", "0", "", false},
		{"TLS", "1KiB 0", "transport http {\ntls\ntls_insecure_skip_verify\nversions 1.1\n}", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			addr := upstream.Addr
			if test.encrypted {
				addr = testcaddy.ServeTLS(t, upstream)
			}
			c := start(t, setup{env: map[string]string{"UPSTREAM": addr}, site: `
				serialize {
					path {$DIR}
					buffer ` + test.buffer + `
				}
				reverse_proxy {$UPSTREAM} {
					` + test.proxy + `
				}`})
			wantTurnKept(t, c, upstream)
		})
	}
}

// Bug: an upstream of the error routes had the same problem. Their proxy gave up at once,
// and the turn ended while the upstream worked.
func TestClientHangsUpInMidUploadOfErrorRoutes(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer 1KiB 0
		}
		@slow query name=slow
		reverse_proxy @slow 127.0.0.1:1
		reverse_proxy {$UPSTREAM}
		handle_errors {
			reverse_proxy {$UPSTREAM}
		}`})
	wantTurnKept(t, c, upstream)
}

// hold_timeout also ends the wait for such an upstream.
func TestClientHangsUpInMidUploadHoldTimeout(t *testing.T) {
	t.Parallel()
	c := start(t, setup{upstream: testcaddy.NewUpstream(t), site: `
		serialize {
			path {$DIR}
			buffer 0
			hold_timeout 2s
		}
		reverse_proxy {$UPSTREAM}`})
	conn := c.dial()
	_, err := io.WriteString(conn, head("stuck&gate&deaf", 1<<20)+strings.Repeat("x", 10<<10))
	check(t, err)
	c.awaitTickets(1)
	next := c.getting("/")
	c.awaitTickets(2)
	check(t, conn.Close())
	(<-next).Want(t, http.StatusOK)
	c.wantNoTickets()
}
