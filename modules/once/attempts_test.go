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

type countingConn struct {
	net.Conn
	closes int
}

func (c *countingConn) Close() error { c.closes++; return nil }
