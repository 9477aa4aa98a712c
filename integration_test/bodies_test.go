//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Bodies of any size arrive whole, with a length or in chunks.
func TestUploads(t *testing.T) {
	t.Parallel()
	const buffer = 64 << 10
	b := newBackend(t)
	c := start(t, setup{tls: true, site: serialized, backend: b})
	for _, size := range []int{0, 1, buffer - 1, buffer, buffer + 1, 8 << 20} {
		for _, chunked := range []bool{false, true} {
			body := bytes.Repeat([]byte("orderly "), size/8+1)[:size]
			bothVersions(t, func(t *testing.T, client *http.Client) {
				name := fmt.Sprintf("%s,%d,%t", t.Name()[len(t.Name())-1:], size, chunked)
				var reader io.Reader = bytes.NewReader(body)
				if chunked {
					reader = io.MultiReader(reader) // hides the length
				}
				doContext(t.Context(), client, "POST", c.url+"/?name="+name, reader).want(t, http.StatusOK)
				if v := b.visit(name); v.length != int64(size) || v.digest != sha256.Sum256(body) {
					t.Errorf("%s: the backend got %d bytes, or others", name, v.length)
				}
			})
		}
	}
}

// A client that waits for 100 Continue before it sends its body gets it.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{site: serialized, backend: b})
	client := newClient(t, "1.1")
	client.Transport.(*http.Transport).ExpectContinueTimeout = 2 * patience
	for _, size := range []int{100, 1 << 20} {
		name := fmt.Sprint("size", size)
		do(client, "PUT", c.url+"/?name="+name, strings.Repeat("x", size), "Expect: 100-continue").want(t, http.StatusOK)
		if got := b.visit(name).length; got != int64(size) {
			t.Errorf("the backend got %d bytes, want %d", got, size)
		}
	}
}

// A client that sends its body slowly does not hold the queue: it gets its
// ticket when the body, or as much as the buffer takes, is here.
func TestSlowSender(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{site: serialized, backend: b})
	conn := c.dial()
	_, err := io.WriteString(conn, "POST /?name=slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n12345")
	check(t, err)
	// Long enough for the head to be read, even if nothing shows it.
	time.Sleep(100 * time.Millisecond)
	c.get("/?name=quick").want(t, http.StatusOK)
	if files := lockFiles(t, c.dir); len(files) > 0 {
		c.wantNoTickets()
	}
	b.wantNever(t, "slow")
	_, err = io.WriteString(conn, "67890")
	check(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	check(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK || b.visit("slow").length != 10 {
		t.Errorf("answered %s, the backend got %d bytes", resp.Status, b.visit("slow").length)
	}
}

// A body that breaks off before the ticket is no request.
func TestBodyBreaksOff(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	c := start(t, setup{site: serialized, backend: b})
	conn := c.dial()
	_, err := io.WriteString(conn, "POST /?name=broken HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n12345")
	check(t, err)
	check(t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode != http.StatusBadRequest {
		t.Errorf("answered %s, want 400 or nothing", resp.Status)
	}
	c.get("/?name=next").want(t, http.StatusOK)
	b.wantOrder(t, "next")
	c.wantNoTickets()
}

// dial connects to the site. Both ends are closed with the test.
func (c *caddy) dial() net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	check(c.t, err)
	check(c.t, conn.SetDeadline(time.Now().Add(patience)))
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}
