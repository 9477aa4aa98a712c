package integration_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Bug: an HTTP/1.1 client that hung up stayed in the queue in two cases. It had sent a
// byte more than its request, or its body was larger than the buffers. net/http then does
// not read from the connection.
func TestClientHangsUpWithSomethingUnread(t *testing.T) {
	t.Parallel()
	const get = "GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	for _, request := range []struct{ name, text string }{
		{"one byte more", get + "G"},
		{"another request", get + get},
		{"a body and one byte more", head("waiting", 5) + "12345P"},
		// What does not fit in the socket's buffer keeps the end of the connection
		// from arriving.
		{"a body larger than the buffers", head("waiting", 20<<10) + strings.Repeat("x", 20<<10)},
		{"the beginning of a body", head("waiting", 1<<20) + strings.Repeat("x", 6<<10)},
	} {
		for _, encrypted := range []bool{false, true} {
			name := request.name
			if encrypted {
				name += ", TLS"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				upstream := testcaddy.NewUpstream(t)
				c := start(t, setup{tls: encrypted, upstream: upstream, site: `
					serialize {
						path {$DIR}
						buffer 1KiB 4KiB
					}
					reverse_proxy {$UPSTREAM}`})
				holder := c.holder(t)
				conn, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimPrefix(c.url, "http://"), "https://"))
				check(t, err)
				defer conn.Close()
				stream := conn
				if encrypted {
					config := insecure.Clone()
					config.ServerName = "localhost"
					stream = tls.Client(conn, config)
				}
				host := c.url[strings.LastIndex(c.url, "/")+1:]
				_, err = io.WriteString(stream, regexp.MustCompile("Host: .*\r").ReplaceAllString(request.text, "Host: "+host+"\r"))
				check(t, err)
				c.awaitTickets(2)
				// Long enough for the client to be looked for in vain.
				time.Sleep(time.Second)
				c.awaitTickets(2)
				check(t, conn.Close())
				gone := time.Now()
				c.awaitTickets(1)
				// A second is promised; a busy machine needs more. The timeout is longer.
				if took := time.Since(gone); took > wait.Patience/2 {
					t.Errorf("the ticket was there for %v", took)
				}
				release(t, upstream, holder)
				c.get("/?name=last").Want(t, http.StatusOK)
				upstream.WantOrder("holder", "last")
			})
		}
	}
}

// A connected client does not count as gone, even if it sends its next requests in
// advance.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: serialized, upstream: upstream})
	holder := c.holder(t)
	conn := c.dial()
	_, err := io.WriteString(conn, strings.Repeat("GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 2)+
		"GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
	check(t, err)
	c.awaitTickets(2)
	time.Sleep(time.Second)
	release(t, upstream, holder)
	answers, err := io.ReadAll(conn)
	check(t, err)
	if got := strings.Count(string(answers), "200 OK"); got != 3 {
		t.Errorf("%d requests were served, want 3:\n%s", got, answers)
	}
}
