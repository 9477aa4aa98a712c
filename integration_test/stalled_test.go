//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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
	{"HTTP/3", stallHTTP3},
}

// announced is how much a stalled client says that it will send. It sends half
// of it.
const announced = 16 << 10

// stallHTTP1 returns the connection.
func stallHTTP1(t *testing.T, c *caddy, method, path string) *tls.Conn {
	t.Helper()
	dialer := &net.Dialer{Timeout: wait.Patience}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.url, "https://"))
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	check(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	config := insecure.Clone()
	config.ServerName = "localhost"
	secure := tls.Client(conn, config)
	head := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	if method == http.MethodPost {
		head += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", announced, make([]byte, announced/2))
	} else {
		head += "\r\n"
	}
	_, err = io.WriteString(secure, head)
	check(t, err)
	return secure
}

// stallHTTP2 returns the framer of the connection, on which the next stream is 3.
func stallHTTP2(t *testing.T, c *caddy, window uint32, method, path string) *http2.Framer {
	t.Helper()
	config := insecure.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: wait.Patience}, "tcp", strings.TrimPrefix(c.url, "https://"), config)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	check(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	check(t, framer.WriteSettingsAck())
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := []string{":method", method, ":scheme", "https", ":authority", strings.TrimPrefix(c.url, "https://"), ":path", path}
	if method == http.MethodPost {
		fields = append(fields, "content-length", fmt.Sprint(announced))
	}
	for i := 0; i < len(fields); i += 2 {
		check(t, encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	check(t, framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: method != http.MethodPost,
	}))
	if method == http.MethodPost {
		check(t, framer.WriteData(1, false, make([]byte, announced/2)))
	}
	return framer
}

func stallHTTP3(t *testing.T, c *caddy, method, path string) {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		rest, stalled := io.Pipe()
		t.Cleanup(func() { _ = stalled.Close() })
		body = io.MultiReader(bytes.NewReader(make([]byte, announced/2)), rest)
	}
	client := newClient(t, "3")
	go func() {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.url+path, body)
		if err != nil {
			return
		}
		if resp, err := client.Do(req); err == nil {
			t.Cleanup(func() { _ = resp.Body.Close() })
		}
	}()
}

// What revokes a turn.
var revocations = []struct {
	name   string
	option string
	revoke func(c *caddy)
}{
	{"hold_timeout", "hold_timeout 2s", func(*caddy) {}},
	{"eviction", "", (*caddy).evictInside},
}

// evictInside evicts the request that is inside.
func (c *caddy) evictInside() {
	c.t.Helper()
	var queues []struct {
		Path, Prefix string
		Tickets      []struct{ Token, State string }
	}
	check(c.t, json.Unmarshal([]byte(c.Ask("/serialize/queues")), &queues))
	for _, queue := range queues {
		for _, ticket := range queue.Tickets {
			if ticket.State == "inside" {
				r := c.API("DELETE", "/serialize/queues/"+url.PathEscape(queue.Path+"/"+queue.Prefix)+"/"+ticket.Token, "")
				if r.Err != nil || r.StatusCode >= 300 {
					c.t.Fatalf("evicting: %v", r)
				}
				return
			}
		}
	}
	c.t.Fatalf("nobody is inside: %v", queues)
}

// Bug: a client that did not read kept its turn after it was revoked, because the
// response was stuck in the connection.
func TestClientDoesNotRead(t *testing.T) {
	t.Parallel()
	for _, revocation := range revocations {
		for _, client := range stalledClients {
			t.Run(revocation.name+", "+client.name, func(t *testing.T) {
				t.Parallel()
				upstream := testcaddy.NewUpstream(t)
				c := start(t, setup{tls: true, upstream: upstream, site: "serialize {\npath {$DIR}\n" + revocation.option + "\n}\n" + proxyUpstream})
				client.send(t, c, "GET", "/?name=stalled&gate&flood")
				upstream.AwaitEntry("stalled")
				next := c.getting("/?name=next")
				time.Sleep(500 * time.Millisecond) // so that the response is stuck
				revocation.revoke(c)
				upstream.AwaitEntry("next")
				(<-next).Want(t, http.StatusOK)
				c.awaitEntryOf("left after its turn was revoked")
				c.wantNoTickets()
			})
		}
	}
}

// Bug: a client that read slowly kept its turn without limit: every write succeeded,
// slowly.
func TestClientSips(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{true, false} { // plain connections send files by themselves
		for _, revocation := range revocations {
			t.Run(fmt.Sprintf("%s, plain %t", revocation.name, plain), func(t *testing.T) {
				t.Parallel()
				c := start(t, setup{tls: !plain, site: "serialize {\npath {$DIR}\n" + revocation.option + "\n}\nroot {$HOME}\nfile_server"})
				large := filepath.Join(c.home, "large")
				testcaddy.WriteFile(t, large, "")
				check(t, os.Truncate(large, 1<<30))
				testcaddy.WriteFile(t, filepath.Join(c.home, "small"), "small")

				var conn net.Conn
				if plain {
					conn = c.dial()
					_, err := io.WriteString(conn, "GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
					check(t, err)
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
				small := c.getting("/small")
				revocation.revoke(c)
				if r := (<-small).Want(t, http.StatusOK); r.Text != "small" {
					t.Errorf("answered %q", r.Text)
				}
				close(thirsty)
				select {
				case <-sipped: // the client sees the end
				case <-time.After(wait.Patience):
					t.Error("the connection is still open")
				}
				c.wantNoTickets()
			})
		}
	}
}

// Bug: a client that did not send the rest of its body kept the turn while a handler read
// it.
func TestClientDoesNotSend(t *testing.T) {
	t.Parallel()
	for _, revocation := range revocations {
		for _, client := range stalledClients {
			t.Run(revocation.name+", "+client.name, func(t *testing.T) {
				t.Parallel()
				upstream := testcaddy.NewUpstream(t)
				c := start(t, setup{tls: true, upstream: upstream, site: "route {\nserialize {\npath {$DIR}\nbuffer off\n" + revocation.option + "\n}\n" +
					"request_header X-Length {http.request.body}\n" + proxyUpstream + "}"})
				client.send(t, c, "POST", "/?name=stalled")
				c.awaitTickets(1)
				next := c.getting("/?name=next")
				revocation.revoke(c)
				upstream.AwaitEntry("next")
				(<-next).Want(t, http.StatusOK)
				upstream.WantNever("stalled")
				c.wantNoTickets()
			})
		}
	}
}

// A client that reads still gets its answer.
func TestAnswerToStalledUpload(t *testing.T) {
	t.Parallel()
	const hold = 300 * time.Millisecond
	c := start(t, setup{tls: true, site: "route {\nserialize {\npath {$DIR}\nbuffer off\nhold_timeout " + hold.String() + "\n}\n" +
		"request_header X-Length {http.request.body}\nrespond late\n}\nhandle_errors {\nrespond \"sorry: {err.status_code}\"\n}"})
	var resp *http.Response
	for end := time.Now().Add(wait.Patience); resp == nil; {
		began := time.Now()
		conn := stallHTTP1(t, c, "POST", "/")
		check(t, conn.SetReadDeadline(end))
		var err error
		// An answer has half a second, which a busy machine may not have.
		if resp, err = http.ReadResponse(bufio.NewReader(conn), nil); time.Since(began) < hold+answerTime || time.Now().After(end) {
			check(t, err)
		}
	}
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	if resp.StatusCode != http.StatusGatewayTimeout || string(body) != "sorry: 504" || !resp.Close {
		t.Errorf("answered %s, %q, close %t", resp.Status, body, resp.Close)
	}
	c.wantNoTickets()
}

// Bug: a stalled upload held its turn past hold_timeout if part of its body had come. What
// came after the answer then counted as the next request of the connection.
func TestRevokedUpload(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"Content-Length: 1000", "Content-Length: 600000", "Transfer-Encoding: chunked", "Content-Length: 1000\r\nExpect: 100-continue"} {
		for _, sent := range []string{"", "3\r\nabc\r\n"} {
			t.Run(fmt.Sprintf("%s, %d bytes", framing, len(sent)), func(t *testing.T) {
				t.Parallel()
				upstream := testcaddy.NewUpstream(t)
				c := start(t, setup{upstream: upstream, site: "serialize {\npath {$DIR}\nbuffer off\nhold_timeout 300ms\n}\n" + proxyUpstream})
				conn := c.dial()
				_, err := io.WriteString(conn, "POST /?name=stalled HTTP/1.1\r\nHost: 127.0.0.1\r\n"+framing+"\r\n\r\n"+sent)
				check(t, err)
				answers := bufio.NewReader(conn)
				resp, err := http.ReadResponse(answers, nil)
				for err == nil && resp.StatusCode == http.StatusContinue {
					resp, err = http.ReadResponse(answers, nil)
				}
				check(t, err)
				if resp.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("answered %s", resp.Status)
				}
				c.awaitTickets(0)
				_, _ = io.WriteString(conn, "GET /?name=smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
				if rest, _ := io.ReadAll(answers); strings.Contains(string(rest), "HTTP/1.1") {
					t.Errorf("the connection goes on with %q", rest)
				}
				upstream.WantNever("smuggled")
			})
		}
	}
}

// Other streams of the connection are not touched.
func TestOtherStreamsGoOn(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{tls: true, upstream: upstream, site: "serialize /queue* {\npath {$DIR}\nhold_timeout 2s\n}\n" + proxyUpstream})
	framer := stallHTTP2(t, c, 1<<14, "GET", "/queue?name=stalled&gate&flood")
	upstream.AwaitEntry("stalled")
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []string{":method GET", ":scheme https", ":authority localhost", ":path /free?name=free&work=4s"} {
		name, value, _ := strings.Cut(field, " ")
		check(t, encoder.WriteField(hpack.HeaderField{Name: name, Value: value}))
	}
	check(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
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
	c.wantNoTickets()
}

// Bug: an inactive WebSocket client kept its turn: both directions were stuck in its
// connection.
func TestWebSocketDoesNotRead(t *testing.T) {
	t.Parallel()
	for _, revocation := range revocations {
		t.Run(revocation.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{env: map[string]string{"UPSTREAM": floodUpstream(t)}, site: "serialize {\npath {$DIR}\n" + revocation.option + "\n}\n" + proxyUpstream})
			conn := c.dial()
			_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			check(t, err)
			if _, err := conn.Read(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
			c.awaitTickets(1)
			time.Sleep(500 * time.Millisecond) // so that the frames are stuck
			revocation.revoke(c)
			c.awaitTickets(0)
		})
	}
}

// floodUpstream takes over the connection and sends without end.
func floodUpstream(t *testing.T) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
				for frames := make([]byte, 64<<10); err == nil; {
					_, err = conn.Write(frames)
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// Bug: with on_disconnect cancel, a client that had closed its side of the connection and
// did not read kept the turn, too.
func TestClientHalfClosesCancel(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: "serialize {\npath {$DIR}\non_disconnect cancel\n}\n" + proxyUpstream})
	conn := c.dial().(*net.TCPConn)
	check(t, conn.SetReadBuffer(4<<10))
	_, err := io.WriteString(conn, "GET /?name=stalled&gate&flood HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	check(t, err)
	upstream.AwaitEntry("stalled")
	next := c.getting("/?name=next")
	time.Sleep(500 * time.Millisecond) // so that the response is stuck
	check(t, conn.CloseWrite())
	upstream.AwaitEntry("next")
	(<-next).Want(t, http.StatusOK)
	c.wantNoTickets()
}
