package once

import (
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
)

// attempts watches net/http send a request to upstreams. net/http sends a request without a body
// again, by itself, if it has an Idempotency-Key and its kept connection breaks. A proxy may try
// another upstream. The first upstream may have acted, so attempts prevents both.
type attempts struct {
	wanted atomic.Bool // a connection was asked for
	sent   atomic.Bool // at least a part of the request may have been sent
	open   atomic.Bool // and no answer has come since
	cut    func(cause error)
}

var errSentOnce = errors.New("the connection to the upstream broke after the request had been sent, and it is not sent again")

// trace returns what net/http calls. Cancelling the request alone would not do: net/http may not
// see it before it writes to a connection that it has already.
func (a *attempts) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			a.wanted.Store(true)
			if a.open.Load() {
				a.cut(errSentOnce)
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			if a.open.Load() && !isHTTP2(info) { // whose connections are shared; it repeats only what was not processed
				_ = info.Conn.Close()
			}
		},
		WroteHeaders:         func() { a.sent.Store(true); a.open.Store(true) },
		GotFirstResponseByte: func() { a.open.Store(false) },
		Got1xxResponse:       func(int, textproto.MIMEHeader) error { a.open.Store(true); return nil },
		PutIdleConn:          func(error) { a.open.Store(false) },
	}
}

func isHTTP2(info httptrace.GotConnInfo) bool {
	conn, ok := info.Conn.(*tls.Conn)
	return ok && conn.ConnectionState().NegotiatedProtocol == "h2"
}
