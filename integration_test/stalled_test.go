//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// A stalledClient makes a request and then does nothing any more: it neither
// reads the response nor sends what it has announced.
type stalledClient struct {
	name string
	send func(t *testing.T, c *caddy, method, path string)
}

var stalledClients = []stalledClient{
	{"HTTP/1.1", func(t *testing.T, c *caddy, method, path string) { stallHTTP1(t, c, method, path) }},
	{"HTTP/2, a window of 0", func(t *testing.T, c *caddy, method, path string) { stallHTTP2(t, c, 0, method, path) }},
	{"HTTP/2, a window of 1", func(t *testing.T, c *caddy, method, path string) { stallHTTP2(t, c, 1, method, path) }},
	// Bug: with the connection itself full, the reset of the stream could not be written, and
	// the turn lasted for ever.
	{"HTTP/2, a large window", func(t *testing.T, c *caddy, method, path string) {
		check(t, stallHTTP2(t, c, 1<<30, method, path).WriteWindowUpdate(0, 1<<30))
	}},
	{"HTTP/3", stallHTTP3},
}

// announced is how much a stalled client says that it will send. It sends half
// of it.
const announced = 16 << 10

// stallHTTP1 returns the connection.
func stallHTTP1(t *testing.T, c *caddy, method, path string) *tls.Conn {
	t.Helper()
	conn := c.dial("")
	check(t, conn.SetReadBuffer(4<<10))
	secure := tls.Client(conn, insecure.Clone())
	head := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	if method == http.MethodPost {
		head += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", announced, make([]byte, announced/2))
	} else {
		head += "\r\n"
	}
	_, err := io.WriteString(secure, head)
	check(t, err)
	return secure
}

// stallHTTP2 returns the framer of the connection, on which the next stream is 3.
func stallHTTP2(t *testing.T, c *caddy, window uint32, method, path string) *http2.Framer {
	t.Helper()
	framer := dialHTTP2(t, c, window)
	beginStream(t, framer, 1, method, path)
	return framer
}

func dialHTTP2(t *testing.T, c *caddy, window uint32) *http2.Framer {
	t.Helper()
	config := insecure.Clone()
	config.NextProtos = []string{"h2"}
	conn := tls.Client(c.dial(""), config)
	_, err := io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	check(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	check(t, framer.WriteSettingsAck())
	return framer
}

// beginStream makes a request on a connection.
func beginStream(t *testing.T, framer *http2.Framer, stream uint32, method, path string) {
	t.Helper()
	fields := []string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", path}
	if method != http.MethodPost {
		sendHead(t, framer, stream, true, fields...)
		return
	}
	sendHead(t, framer, stream, false, append(fields, "content-length", fmt.Sprint(announced))...)
	check(t, framer.WriteData(stream, false, make([]byte, announced/2)))
}

// sendHead sends the head of a request, names and values in turn.
func sendHead(t *testing.T, framer *http2.Framer, stream uint32, end bool, fields ...string) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		check(t, encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	check(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end}))
}

func stallHTTP3(t *testing.T, c *caddy, method, path string) {
	t.Helper()
	rest, stalled := io.Pipe()
	t.Cleanup(func() { _ = stalled.Close() })
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.url+path, http.NoBody)
	check(t, err)
	if method == http.MethodPost {
		req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, announced/2)), rest))
	}
	client := newClient(t, "3")
	go func() {
		if resp, err := client.Do(req); err == nil {
			t.Cleanup(func() { _ = resp.Body.Close() })
		}
	}()
}

// evictInside waits until a request is inside, and evicts it.
func (c *caddy) evictInside() {
	c.t.Helper()
	var path string
	wait.Until(c.t, "somebody is inside", func() bool {
		for _, q := range c.queues() {
			if q.Inside > 0 {
				path = c.path(q.Prefix) + "/" + q.Tickets[0].Token
			}
		}
		return path != ""
	})
	c.API("DELETE", path, "").Want(c.t, http.StatusOK)
}

// eachStalled runs a test with each client that stalls, until hold_timeout, and one that
// is evicted. It gets the option of the queue, and how to revoke the turn.
func eachStalled(t *testing.T, test func(t *testing.T, client stalledClient, option string, revoke func(c *caddy))) {
	t.Parallel()
	for _, client := range stalledClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			test(t, client, "hold_timeout 2s", func(*caddy) {})
		})
	}
	t.Run("eviction", func(t *testing.T) {
		t.Parallel()
		test(t, stalledClients[0], "", (*caddy).evictInside)
	})
}

// writeIdle has Caddy move the deadlines of writes itself.
const writeIdle = "timeouts {\n write_idle 1m\n}"

// Bug: a client that did not read kept its turn after it was revoked, because the
// response was stuck in the connection. Bug: nothing in the log said that it was revoked, if its request had left
// very soon.
func TestClientDoesNotRead(t *testing.T) {
	eachStalled(t, func(t *testing.T, client stalledClient, option string, revoke func(c *caddy)) {
		c := start(t, setup{tls: true, servers: writeIdle, site: behindQueue(option)})
		client.send(t, c, "GET", "/?name=stalled&gate&stream")
		c.awaitHit("stalled")
		next := c.getting("/?name=next")
		time.Sleep(500 * time.Millisecond) // so that the response is stuck
		revoke(c)
		c.awaitHit("next")
		c.wantServed(next)
		c.awaitEntryOf("turn revoked")
		c.awaitTickets(0)
	})
}

// Bug: a client that read slowly kept its turn without limit: every write succeeded,
// slowly.
func TestClientSips(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{true, false} { // plain connections send files by themselves
		t.Run(fmt.Sprintf("plain %t", plain), func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{tls: !plain, servers: writeIdle, site: "serialize {\npath {$DIR}\nhold_timeout 2s\n}\nroot {$HOME}\nfile_server"})
			large := filepath.Join(c.home, "large")
			testcaddy.WriteFile(t, large, "")
			check(t, os.Truncate(large, 1<<30))
			testcaddy.WriteFile(t, filepath.Join(c.home, "small"), "small")

			var conn net.Conn
			if plain {
				conn = c.dial("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
			} else {
				secure := stallHTTP1(t, c, "GET", "/large")
				check(t, secure.NetConn().(*net.TCPConn).SetReadBuffer(256<<10))
				conn = secure
			}
			sip := make([]byte, 32<<10)
			_, err := conn.Read(sip)
			check(t, err)
			sipped, thirsty := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(sipped)
				for {
					if _, err := conn.Read(sip); err != nil {
						return
					}
					select {
					case <-time.After(5 * time.Millisecond):
					case <-thirsty: // what the kernel has, it sends
					}
				}
			}()
			if r := c.get("/small").Want(t, http.StatusOK); r.Text != "small" {
				t.Errorf("answered %q", r.Text)
			}
			close(thirsty)
			select {
			case <-sipped: // the client sees the end
			case <-time.After(wait.Patience):
				t.Error("the connection is still open")
			}
			c.awaitTickets(0)
		})
	}
}

// Bug: a client that did not send the rest of its body kept the turn while a handler read
// it.
func TestClientDoesNotSend(t *testing.T) {
	eachStalled(t, func(t *testing.T, client stalledClient, option string, revoke func(c *caddy)) {
		c := start(t, setup{tls: true, site: "route {\nserialize {\npath {$DIR}\nbuffer off\n" + option + "\n}\n" +
			"request_header X-Length {http.request.body}\nreverse_proxy {$UPSTREAM}\n}"})
		client.send(t, c, "POST", "/?name=stalled")
		c.awaitTickets(1)
		next := c.getting("/?name=next")
		revoke(c)
		c.awaitHit("next")
		c.wantServed(next)
		c.WantNever("stalled")
		c.awaitTickets(0)
	})
}

// Bug: a stalled upload held its turn past hold_timeout if part of its body had come. What
// came after the answer then counted as the next request of the connection. A client that
// reads gets its answer, from the error routes. Bug: then, the connection stayed for ever, and
// so did a Caddy that was to stop: net/http waited for the body, without the deadline for that.
func TestRevokedUpload(t *testing.T) {
	t.Parallel()
	for _, timeouts := range []string{"", "timeouts {\nread_body 2s\n}", "timeouts {\nread_body_idle 1m\n}"} {
		c := start(t, setup{
			site:    behindQueue("prefix {query.queue}_\nbuffer off\nhold_timeout 300ms") + "\nhandle_errors {\nrespond \"sorry: {err.status_code}\"\n}",
			servers: timeouts,
		})
		for _, framing := range []string{"Content-Length: 1000", "Content-Length: 600000", "Transfer-Encoding: chunked", "Content-Length: 1000\r\nExpect: 100-continue"} {
			for i, sent := range []string{"", "3\r\nabc\r\n"} {
				name := strings.Join([]string{timeouts, framing, sent}, ", ")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					conn := c.dial(fmt.Sprintf("POST /?name=stalled&queue=%d%d HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n%s", len(framing), i, framing, sent))
					answers := bufio.NewReader(conn)
					resp, err := http.ReadResponse(answers, nil)
					for err == nil && resp.StatusCode == http.StatusContinue {
						resp, err = http.ReadResponse(answers, nil)
					}
					check(t, err)
					body, err := io.ReadAll(resp.Body)
					check(t, err)
					if resp.StatusCode != http.StatusGatewayTimeout || string(body) != "sorry: 504" || !resp.Close {
						t.Errorf("answered %s, %q, close %t", resp.Status, body, resp.Close)
					}
					_, _ = io.WriteString(conn, "GET /?name=smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
					rest, err := io.ReadAll(answers)
					if errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(rest), "HTTP/1.1") {
						t.Errorf("the connection goes on with %q, %v", rest, err)
					}
					c.awaitTickets(0)
					c.WantNever("smuggled")
				})
			}
		}
	}
}

// Bug: an answer that had begun was not cut off, since net/http waited for the body before.
func TestRevokedUploadAfterAPart(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = w.Write(make([]byte, 5000))
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	for _, timeouts := range []string{"", "timeouts {\nread_body_idle 1m\n}"} {
		c := start(t, setup{
			env: map[string]string{"UPSTREAM": upstream}, servers: timeouts + "\nenable_full_duplex",
			site: behindQueue("buffer off\nresponse_buffer 0\nhold_timeout 1s"),
		})
		conn := c.dial(head("stalled", 1000) + "12345")
		if got, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || len(got) < 5000 {
			t.Errorf("%s: read %d bytes, %v", timeouts, len(got), err)
		}
		c.awaitTickets(0)
	}
}

// Other streams of the connection are not touched.
func TestOtherStreamsGoOn(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tls: true, site: "serialize /queue* {\npath {$DIR}\nhold_timeout 2s\n}\nreverse_proxy {$UPSTREAM}"})
	framer := stallHTTP2(t, c, 1<<14, "GET", "/queue?name=stalled&gate&stream")
	c.awaitHit("stalled")
	beginStream(t, framer, 3, "GET", "/free?name=free&work=3s")
	reset, status := false, ""
	for status == "" {
		frame, err := framer.ReadFrame()
		check(t, err)
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			reset = reset || frame.StreamID == 1
		case *http2.MetaHeadersFrame:
			if frame.StreamID == 3 {
				status = frame.PseudoValue("status")
			}
		case *http2.GoAwayFrame:
			t.Fatalf("the connection ends: %v", frame)
		}
	}
	if !reset || status != "200" {
		t.Errorf("stream 1 was reset: %t; stream 3 answered %q", reset, status)
	}
	c.awaitTickets(0)
}

// Bug: an inactive WebSocket client kept its turn: both directions were stuck in its
// connection.
func TestWebSocketDoesNotRead(t *testing.T) {
	t.Parallel()
	flood := upgradingUpstream(t, func(conn net.Conn, _ io.Reader) {
		for frames, err := make([]byte, 64<<10), error(nil); err == nil; {
			_, err = conn.Write(frames)
		}
	})
	c := start(t, setup{env: map[string]string{"UPSTREAM": flood}, site: behindQueue("")})
	conn := c.dial(upgrade)
	_, err := conn.Read(make([]byte, 16))
	check(t, err)
	c.awaitTickets(1)
	time.Sleep(500 * time.Millisecond) // so that the frames are stuck
	c.evictInside()
	c.awaitTickets(0)
}

// Bug: with on_disconnect cancel, a client that had closed its side of the connection and
// did not read kept the turn, too.
func TestClientHalfClosesCancel(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "on_disconnect cancel")
	conn := c.dial("GET /?name=stalled&gate&stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	check(t, conn.SetReadBuffer(4<<10))
	c.awaitHit("stalled")
	next := c.getting("/?name=next")
	time.Sleep(500 * time.Millisecond) // so that the response is stuck
	check(t, conn.CloseWrite())
	c.awaitHit("next")
	c.wantServed(next)
	c.awaitTickets(0)
}
