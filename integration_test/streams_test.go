//go:build unix

package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// eventsUpstream sends one server-sent event for each text that the test hands
// out, and ends with the last one.
func eventsUpstream(t *testing.T, events <-chan string) (addr string) {
	return testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range events {
			fmt.Fprintf(w, "data: %s\n\n", event)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	}))
}

// Server-sent events arrive one by one, while the request is inside.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	for _, onDisconnect := range []string{"finish", "cancel"} {
		allVersions(t, func(t *testing.T, client *http.Client) {
			events := make(chan string)
			c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": eventsUpstream(t, events)}, site: `
				serialize {
					path {$DIR}
					on_disconnect ` + onDisconnect + `
				}
				reverse_proxy {$UPSTREAM}`})
			answer := make(chan *http.Response, 1)
			go func() {
				resp, err := client.Get(c.url)
				if err != nil {
					t.Error(err)
				}
				answer <- resp
			}()
			events <- "0" // which sends the head, too
			resp := <-answer
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for i := range 5 {
				if i > 0 {
					events <- fmt.Sprint(i)
				}
				if want := fmt.Sprint("data: ", i); !lines.Scan() || lines.Text() != want || !lines.Scan() {
					t.Fatalf("line %q, want %q", lines.Text(), want)
				}
				if i == 0 && len(lockFiles(t, c.dir)) != 1 {
					t.Error("the request is not inside")
				}
			}
			close(events)
			if lines.Scan() {
				t.Errorf("one more line: %q", lines.Text())
			}
			c.wantNoTickets()
		})
	}
}

// echoUpstream takes over the connection and sends back whatever comes.
func echoUpstream(t *testing.T) (addr string) {
	return testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	}))
}

// A WebSocket keeps its turn while it is open. When its client is gone, the turn ends.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	for _, onDisconnect := range []string{"finish", "cancel"} {
		t.Run(onDisconnect, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{env: map[string]string{"UPSTREAM": echoUpstream(t)}, site: `
				serialize {
					path {$DIR}
					on_disconnect ` + onDisconnect + `
				}
				reverse_proxy {$UPSTREAM}`})
			for range 2 {
				conn := c.dial()
				_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
				check(t, err)
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
			}
		})
	}
}

// A stream ends with its client, whatever on_disconnect says. Bug: an event stream whose
// browser had gone held its turn for minutes, and a cancelled gRPC call ran on.
func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "data\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	for _, kind := range []string{"text/event-stream", "application/x-ndjson", "application/grpc", "multipart/x-mixed-replace"} {
		allVersions(t, func(t *testing.T, client *http.Client) {
			c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": upstream}, site: "serialize {\npath {$DIR}\n}\nreverse_proxy {$UPSTREAM}"})
			resp, err := client.Get(c.url + "?type=" + kind)
			check(t, err)
			_, err = io.ReadFull(resp.Body, make([]byte, 6))
			check(t, err)
			c.awaitTickets(1)
			check(t, resp.Body.Close())
			c.awaitTickets(0)
		})
	}
}
