package once

import (
	"net"
	"net/http/httptrace"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// A request that was sent goes to no other connection, and net/http closes the kept one that it is about to
// send it on again. Bug: a stream that an upstream refused closed the connection, which other requests use,
// too, if that was HTTP/2 without TLS. It was not known then what became of them. Bug: net/http does not ask
// for a connection by HTTP/2 whose first request hung up during the handshake, and two upstreams acted.
func TestRepeatedAttempt(t *testing.T) {
	for _, c := range []struct {
		field         string
		asks, answers bool
		cut, closes   bool
	}{
		{"Host", true, false, true, true}, {":method", true, false, true, false},
		{":method", false, false, true, false}, {":method", false, true, false, false},
	} {
		cut, a, conn := false, new(attempts), new(countingConn)
		a.repl, a.cut = caddy.NewEmptyReplacer(), func(error) { cut = true }
		trace := a.trace()
		for i := range 2 {
			if i == 0 || c.asks {
				trace.GetConn("")
			}
			trace.GotConn(httptrace.GotConnInfo{Conn: conn})
			trace.WroteHeaderField(c.field, nil)
			if c.answers {
				trace.GotFirstResponseByte()
			}
		}
		if cut != c.cut || (conn.closes == 1) != c.closes || a.earlier.Load() == cut {
			t.Errorf("%+v: cut %t, closed %d times, sent earlier %t", c, cut, conn.closes, a.earlier.Load())
		}
	}
}

// Bug: a DNS query was taken for the connection to PHP, so that was not tried at another address. Bug: a
// Unix socket has no port, so no connection to PHP by one was seen: a request was sent to two.
func TestAttemptsByFastCGI(t *testing.T) {
	type step struct {
		network, addr string
		err           error
		cuts          int
	}
	for address, c := range map[string]struct {
		port  string
		steps []step
	}{
		"10.0.0.1:9000": {"9000", []step{
			{"tcp", "10.0.0.1:9000", net.ErrClosed, 0}, {"udp", "10.0.0.53:53", nil, 0}, {"tcp", "10.0.0.53:53", nil, 0},
			{"tcp", "10.0.0.2:9000", nil, 0}, {"tcp", "10.0.0.3:9000", nil, 1},
		}},
		"unix//php.sock": {"0", []step{{"unix", "/php.sock", net.ErrClosed, 0}, {"unix", "/php.sock", nil, 0}, {"unix", "/php.sock", nil, 1}}},
	} {
		cuts, a, repl := 0, new(attempts), caddy.NewEmptyReplacer()
		a.repl, a.cut = repl, func(error) { cuts++ }
		repl.Set("http.reverse_proxy.upstream.address", address)
		repl.Set("http.reverse_proxy.upstream.port", c.port)
		for i, step := range c.steps {
			a.trace().ConnectStart(step.network, step.addr)
			if cuts != step.cuts {
				t.Errorf("%s, step %d: cut %d times", address, i, cuts)
			}
			a.trace().ConnectDone(step.network, step.addr, step.err)
			if sent, _ := a.reached(); i == 0 && sent {
				t.Errorf("%s: sent by no connection", address)
			}
		}
	}
}

type countingConn struct {
	net.Conn
	closes int
}

func (c *countingConn) Close() error { c.closes++; return nil }
