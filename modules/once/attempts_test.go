package once

import (
	"net"
	"net/http/httptrace"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// net/http closes, for attempts, the kept connection that it is about to send a request on again. Bug:
// a stream that an upstream refused closed the connection, which other requests use, too, if that was
// HTTP/2 without TLS. It was not known then what became of them.
func TestRepeatedAttempt(t *testing.T) {
	for field, closes := range map[string]bool{"Host": true, ":method": false} {
		cuts := 0
		a := new(attempts)
		a.init(caddy.NewEmptyReplacer(), func(error) { cuts++ })
		trace, conn := a.trace(), new(countingConn)
		for range 2 {
			trace.GetConn("")
			trace.GotConn(httptrace.GotConnInfo{Conn: conn})
			trace.WroteHeaderField(field, nil)
		}
		if cuts != 1 || (conn.closes == 1) != closes {
			t.Errorf("%s: cut %d times, closed %d times", field, cuts, conn.closes)
		}
	}
}

// Bug: a DNS query was taken for the connection to PHP, so that was not tried at another address.
func TestAttemptAfterADNSQuery(t *testing.T) {
	cuts, a, repl := 0, new(attempts), caddy.NewEmptyReplacer()
	a.init(repl, func(error) { cuts++ })
	repl.Set("http.reverse_proxy.upstream.address", "10.0.0.1:9000")
	repl.Set("http.reverse_proxy.upstream.port", "9000")
	trace := a.trace()
	for _, c := range []struct {
		network, addr string
		err           error
		cuts          int
	}{{"tcp", "10.0.0.1:9000", net.ErrClosed, 0}, {"udp", "10.0.0.53:53", nil, 0}, {"tcp", "10.0.0.53:53", nil, 0}, {"tcp", "10.0.0.2:9000", nil, 0}, {"tcp", "10.0.0.3:9000", nil, 1}} {
		trace.ConnectStart(c.network, c.addr)
		if cuts != c.cuts {
			t.Errorf("%s: cut %d times", c.addr, cuts)
		}
		trace.ConnectDone(c.network, c.addr, c.err)
	}
}

// Bug: a Unix socket has no port, so no connection to PHP by one was seen: a request was sent to two.
func TestAttemptsByUnixSocket(t *testing.T) {
	cuts, a, repl := 0, new(attempts), caddy.NewEmptyReplacer()
	a.init(repl, func(error) { cuts++ })
	repl.Set("http.reverse_proxy.upstream.address", "unix//run/php.sock")
	repl.Set("http.reverse_proxy.upstream.port", "0")
	trace := a.trace()
	trace.ConnectStart("unix", "/run/php.sock")
	trace.ConnectDone("unix", "/run/php.sock", net.ErrClosed)
	if sent, _ := a.reached(); sent {
		t.Error("sent by no connection")
	}
	for want := range 2 {
		trace.ConnectStart("unix", "/run/php.sock")
		if cuts != want {
			t.Errorf("connection %d: cut %d times", want+1, cuts)
		}
		trace.ConnectDone("unix", "/run/php.sock", nil)
	}
}

type countingConn struct {
	net.Conn
	closes int
}

func (c *countingConn) Close() error { c.closes++; return nil }
