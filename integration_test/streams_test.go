//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Interim answers, and answers of a streaming kind, arrive at once, while the request is inside. A
// stream ends with its client, even a silent one, whatever on_disconnect says. Bug: an event stream
// whose browser had gone held its turn for minutes, and a cancelled gRPC call ran on.
func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	allVersions(t, func(t *testing.T, client *http.Client) {
		hinted := make(chan struct{}, 1)
		upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			select {
			case <-hinted:
			case <-r.Context().Done():
			}
			w.Header().Set(r.URL.Query().Get("field"), r.URL.Query().Get("value"))
			_, _ = io.WriteString(w, "data\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code != http.StatusEarlyHints || header.Get("Link") == "" {
				t.Errorf("got %d, %v", code, header)
			}
			hinted <- struct{}{}
			return nil
		}})
		c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": upstream}, site: serialized})
		for _, kind := range []string{
			"field=Content-Type&value=text/event-stream", "field=Content-Type&value=application/grpc", "field=X-Accel-Buffering&value=no",
		} {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?"+kind, http.NoBody)
			check(t, err)
			resp, err := client.Do(r)
			check(t, err)
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data\n" {
				t.Fatalf("%s: line %q, %v", kind, line, err)
			}
			c.awaitTickets(1)
			check(t, resp.Body.Close())
			c.awaitTickets(0)
		}
	})
}

// upgrade is the head of a request for a WebSocket.
const upgrade = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// upgradingUpstream takes over the connection of each request.
func upgradingUpstream(t *testing.T, serve func(conn net.Conn, received io.Reader)) (addr string) {
	return testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		serve(conn, rw)
	}))
}

// openSocket opens a WebSocket. What is sent goes to the writer.
func (c *caddy) openSocket(t *testing.T, version string) (answer *http.Response, received io.Reader, sent io.WriteCloser) {
	t.Helper()
	if version == "1.1" {
		conn := c.dial(upgrade)
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		check(t, err)
		return answer, reader, conn
	}
	u, err := url.Parse(c.url)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	t.Cleanup(cancel)
	body, sent := io.Pipe()
	t.Cleanup(func() { _ = sent.Close() })
	answer, err = newClient(t, version).Transport.RoundTrip((&http.Request{
		Method: http.MethodConnect, Proto: "websocket", URL: u, Host: "localhost", Header: make(http.Header), Body: body,
	}).WithContext(ctx))
	check(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer, answer.Body, sent
}

// A WebSocket keeps its turn while it is open. When its client is gone, the turn ends. Over HTTP/3, it needs a
// queue without buffers: what its client sends does not end before the turn.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	echo := upgradingUpstream(t, func(conn net.Conn, received io.Reader) { _, _ = io.Copy(conn, received) })
	for _, test := range []struct {
		version, options string
		status           int
	}{
		{"1.1", "on_disconnect finish", http.StatusSwitchingProtocols},
		{"1.1", "on_disconnect cancel", http.StatusSwitchingProtocols},
		{"3", "buffer off\nresponse_buffer 0", http.StatusOK},
		{"3", "response_buffer 0", http.StatusNotImplemented},
	} {
		t.Run(test.version+" "+test.options, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{tls: test.version == "3", env: map[string]string{"UPSTREAM": echo}, site: behindQueue(test.options)})
			answer, received, sent := c.openSocket(t, test.version)
			if answer.StatusCode != test.status {
				t.Fatalf("answered %s; expected %d", answer.Status, test.status)
			}
			if test.status != http.StatusNotImplemented {
				lines := bufio.NewReader(received)
				for i := range 3 {
					want := fmt.Sprintf("frame %d\n", i)
					_, err := io.WriteString(sent, want)
					check(t, err)
					if got, err := lines.ReadString('\n'); got != want {
						t.Fatalf("got %q, %v, want %q", got, err, want)
					}
				}
				c.awaitTickets(1)
			}
			check(t, sent.Close())
			c.awaitTickets(0)
		})
	}
}

// Bug: over HTTP/2, a body whose length was said to be 0, or was no number, was not read
// before the ticket was taken. It did not end, and neither did the turn, not even by
// hold_timeout.
func TestBodyThatSaysItIsEmpty(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"0", "abc"} {
		for _, options := range []string{"", "buffer off\nhold_timeout 500ms"} {
			c := start(t, setup{tls: true, site: "route {\nserialize {\npath {$DIR}\ntimeout 10s\n" + options + "\n}\n" +
				"request_header X-Length {http.request.body}\nreverse_proxy {$UPSTREAM}\n}"}) // which reads the body inside
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
