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
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Answers of a streaming kind arrive piece by piece, while the request is inside. A stream
// ends with its client, even a silent one, whatever on_disconnect says. Bug: an event stream
// whose browser had gone held its turn for minutes, and a cancelled gRPC call ran on.
func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(r.URL.Query().Get("field"), r.URL.Query().Get("value"))
		for i := range 5 {
			_, _ = fmt.Fprintln(w, "data", i)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
		<-r.Context().Done()
	}))
	allVersions(t, func(t *testing.T, client *http.Client) {
		c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": upstream}, site: serialized})
		for _, kind := range []string{
			"field=Content-Type&value=text/event-stream", "field=Content-Type&value=application/grpc", "field=X-Accel-Buffering&value=no",
		} {
			resp, err := client.Get(c.url + "?" + kind)
			check(t, err)
			lines := bufio.NewScanner(resp.Body)
			for i := range 5 {
				if want := fmt.Sprint("data ", i); !lines.Scan() || lines.Text() != want {
					t.Fatalf("%s: line %q, want %q", kind, lines.Text(), want)
				}
			}
			c.awaitTickets(1)
			check(t, resp.Body.Close())
			c.awaitTickets(0)
		}
	})
}

// Interim responses arrive at once, in all versions of HTTP.
func TestInterimAnswers(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{}, 3)
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		<-gate
		_, _ = io.WriteString(w, "page")
	}))
	c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": upstream}, site: serialized})
	allVersions(t, func(t *testing.T, client *http.Client) {
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code != http.StatusEarlyHints || header.Get("Link") == "" {
				t.Errorf("got %d, %v", code, header)
			}
			gate <- struct{}{}
			return nil
		}}
		r := doContext(httptrace.WithClientTrace(t.Context(), trace), client, "GET", c.url, http.NoBody).Want(t, http.StatusOK)
		if r.Text != "page" {
			t.Errorf("answered %q", r.Text)
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

// A WebSocket keeps its turn while it is open. When its client is gone, the turn ends.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	echo := upgradingUpstream(t, func(conn net.Conn, received io.Reader) { _, _ = io.Copy(conn, received) })
	for _, onDisconnect := range []string{"finish", "cancel"} {
		t.Run(onDisconnect, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{env: map[string]string{"UPSTREAM": echo}, site: behindQueue("on_disconnect " + onDisconnect)})
			conn := c.dial(upgrade)
			reader := bufio.NewReader(conn)
			resp, err := http.ReadResponse(reader, nil)
			check(t, err)
			if resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("answered %s", resp.Status)
			}
			for i := range 3 {
				want := fmt.Sprintf("frame %d\n", i)
				_, err := io.WriteString(conn, want)
				check(t, err)
				if got, err := reader.ReadString('\n'); got != want {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
			}
			if len(lockFiles(t, c.dir)) != 1 {
				t.Error("the request is not inside")
			}
			check(t, conn.Close())
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

// A WebSocket over HTTP/3 keeps its turn while it is open, and needs a queue without buffers: what its client
// sends does not end before the turn.
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
	for options, status := range map[string]int{"response_buffer 0": http.StatusNotImplemented, "buffer off\nresponse_buffer 0": http.StatusOK} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": echo}, site: behindQueue(options)})
			answer, body := open(t, c)
			if answer.StatusCode != status {
				t.Fatalf("answered %s; expected %d", answer.Status, status)
			}
			if status != http.StatusOK {
				return
			}
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
