//go:build unix

package integration_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: a refused request reached the same queue again in the error routes, and passed: it
// was inside beside the holder.
func TestRefusedIsRefusedAgain(t *testing.T) {
	t.Parallel()
	const (
		refusing  = "serialize {\npath {$DIR}\ntimeout 100ms\nerror_code 503\n}\n"
		full      = "serialize {\npath {$DIR}\nqueue_length 1\nerror_code 503\n}\n"
		patient   = "serialize {\npath {$DIR}\ntimeout 1h\nerror_code 429\n}\n"
		answering = "serialize {\npath {$DIR}\nerror_code 429\nerror_response text/plain busy\n}\n"
		proxy     = "reverse_proxy {$UPSTREAM}\n"
	)
	tests := []struct {
		name   string
		site   string
		more   string
		waiter bool // one waits already
		status int
		body   string
	}{
		{
			name:   "by timeout",
			site:   refusing + proxy + "handle_errors {\n" + refusing + proxy + "}",
			status: 503,
		},
		{
			name:   "by a full queue",
			site:   full + proxy + "handle_errors {\n" + full + proxy + "}",
			waiter: true,
			status: 503,
		},
		{
			name:   "other settings",
			site:   refusing + proxy + "handle_errors {\n" + patient + proxy + "}",
			status: 503,
		},
		{
			name:   "with an answer of its own",
			site:   refusing + proxy + "handle_errors {\n" + answering + proxy + "}",
			status: 503, body: "busy",
		},
		{
			name:   "after a rewrite",
			site:   refusing + proxy + "handle_errors {\nrewrite /elsewhere\nroute /elsewhere {\n" + patient + proxy + "}\n}",
			status: 503,
		},
		{
			name:   "in a named route",
			site:   "invoke queue\nhandle_errors {\ninvoke queue\n}",
			more:   "&(queue) {\nroute {\n" + refusing + proxy + "}\n}",
			status: 503,
		},
		{
			name:   "in an inner queue",
			site:   "serialize {\npath {$DIR}\nprefix outer_{query.name}_\n}\nroute {\n" + refusing + proxy + "}\nhandle_errors {\n" + patient + proxy + "}",
			status: 503,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, site: test.site, more: test.more})
			holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/?name=holder&gate") })
			var waiter <-chan testcaddy.Answer
			if test.waiter {
				waiter = c.getting("/?name=waiter")
				c.awaitTickets(2)
			}
			if r := c.get("/?name=refused").Want(t, test.status); r.Text != test.body {
				t.Errorf("answered %q, want %q", r.Text, test.body)
			}
			upstream.WantNever("refused")
			release(t, upstream, holder)
			if test.waiter {
				(<-waiter).Want(t, http.StatusOK)
			}
			upstream.WantNever("refused")
			upstream.WantAlone()
			c.wantNoTickets()
		})
	}
}

// Bug: a request whose body broke off before it had a ticket did so, too.
func TestBrokenBodyIsRefusedAgain(t *testing.T) {
	t.Parallel()
	const queue = "serialize {\npath {$DIR}\n}\nreverse_proxy {$UPSTREAM}\n"
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: queue + "handle_errors {\n" + queue + "}"})
	holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/?name=holder&gate") })
	conn := c.dial()
	_, err := io.WriteString(conn, "POST /?name=broken HTTP/1.1\r\nHost: "+strings.TrimPrefix(c.url, "http://")+
		"\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n")
	check(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("answered %s", resp.Status)
	}
	release(t, upstream, holder)
	upstream.WantOrder("holder")
	c.wantNoTickets()
}
