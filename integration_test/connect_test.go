//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// readsBody is a site whose queue has options, and whose handler reads the body inside.
func readsBody(options string) setup {
	return setup{tls: true, site: "route {\nserialize {\npath {$DIR}\ntimeout 10s\n" + options + "\n}\n" +
		"request_header X-Length {http.request.body}\nreverse_proxy {$UPSTREAM}\n}"}
}

// Bug: over HTTP/2, a body whose length was said to be 0, or was no number, was not read
// before the ticket was taken. It did not end, and neither did the turn, not even by
// hold_timeout.
func TestBodyThatSaysItIsEmpty(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"0", "abc"} {
		for _, options := range []string{"", "buffer off\nhold_timeout 500ms"} {
			c := start(t, readsBody(options))
			sendHead(t, dialHTTP2(t, c, 1<<16), 1, false, ":method", "POST", ":scheme", "https", ":authority", "localhost",
				":path", "/?name=stalled", "content-length", length)
			if options != "" {
				c.awaitTickets(1)
			}
			c.get("/?name=next").Want(t, http.StatusOK)
			c.WantNever("stalled")
			c.awaitTickets(0)
		}
	}
}

// A WebSocket over HTTP/3 keeps its turn while it is open. Bug: so did a request that only
// said that it was one, if the handlers read its body.
func TestWebSocketOverHTTP3(t *testing.T) {
	t.Parallel()
	echo := upgradingUpstream(t, func(conn net.Conn, received io.Reader) { _, _ = io.Copy(conn, received) })
	open := func(t *testing.T, c *caddy) (answer *http.Response, body *io.PipeWriter) {
		t.Helper()
		u, err := url.Parse(c.url + "/?name=socket")
		check(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		t.Cleanup(cancel)
		received, body := io.Pipe()
		t.Cleanup(func() { _ = body.Close() })
		answer, err = newClient(t, "3").Transport.RoundTrip((&http.Request{
			Method: http.MethodConnect, Proto: "websocket", URL: u, Host: "localhost", Header: make(http.Header), Body: received,
		}).WithContext(ctx))
		check(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer, body
	}
	for _, options := range []string{"", "buffer off", "response_buffer 0", "prefix outer_\n}\nserialize {\npath {$DIR}"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			open(t, start(t, readsBody(options))) // which has none

			c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": echo}, site: behindQueue(options)})
			answer, body := open(t, c)
			_, err := io.WriteString(body, "frame\n")
			check(t, err)
			if got, err := bufio.NewReader(answer.Body).ReadString('\n'); got != "frame\n" {
				t.Fatalf("got %q, %v", got, err)
			}
			if len(lockFiles(t, c.dir)) == 0 {
				t.Error("the request is not inside")
			}
			check(t, body.Close())
			c.awaitTickets(0)
		})
	}
}
