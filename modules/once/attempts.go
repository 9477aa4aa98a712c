package once

import (
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
)

// attempts watches net/http send a request to upstreams. net/http sends a request without a body
// again, by itself, if it has an Idempotency-Key and its kept connection breaks. A proxy may try
// another upstream. The first upstream may have acted, so attempts prevents both.
type attempts struct {
	sent   atomic.Bool // at least a part of the request may have been sent
	open   atomic.Bool // and no answer has come since
	shared atomic.Bool // its connection speaks HTTP/2, so other requests use it, too
	over   atomic.Bool // it is known what became of the request; an error route may send another one

	handshake atomic.Pointer[error] // of the latest TLS handshake
	before    atomic.Pointer[any]   // what latency was when a connection was asked for, or nil if none was

	latency func() any // of the latest answer, as Caddy's proxy notes it, or nil
	cut     func(cause error)
}

var errSentOnce = errors.New("the connection to the upstream broke after the request had been sent, and it is not sent again")

// trace returns what net/http calls. Cancelling the request alone would not do: net/http may not
// see it before it writes to a connection that it has already.
func (a *attempts) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			if a.over.Load() {
				return
			}
			if a.isOpen() {
				a.cut(errSentOnce)
				return
			}
			latency := a.latency()
			a.before.Store(&latency)
			a.open.Store(false)
			a.shared.Store(false)
		},
		GotConn: func(info httptrace.GotConnInfo) {
			if !a.over.Load() && a.open.Load() && !a.shared.Load() && !isHTTP2(info) { // which repeats only what was not processed
				_ = info.Conn.Close()
			}
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { a.handshake.Store(&err) },
		WroteHeaderField: func(name string, _ []string) { // once all fields are written, an answer may be there already
			a.sent.Store(true)
			a.open.Store(true)
			if strings.HasPrefix(name, ":") { // only HTTP/2 has such fields; without TLS, nothing else tells
				a.shared.Store(true)
			}
		},
		GotFirstResponseByte: func() { a.open.Store(false) },
		Got1xxResponse:       func(int, textproto.MIMEHeader) error { a.open.Store(true); return nil },
		PutIdleConn:          func(error) { a.open.Store(false) },
	}
}

// isOpen reports whether the latest attempt has got no answer. After an interim one by HTTP/2, only
// the proxy notices the final one.
func (a *attempts) isOpen() bool {
	before := a.before.Load()
	return a.open.Load() && (before == nil || a.latency() == *before)
}

// isHandshake reports whether an error is that of a TLS handshake: nothing was sent then.
func (a *attempts) isHandshake(err error) bool {
	latest := a.handshake.Load()
	return latest != nil && errors.Is(err, *latest)
}

func isHTTP2(info httptrace.GotConnInfo) bool {
	conn, ok := info.Conn.(*tls.Conn)
	return ok && conn.ConnectionState().NegotiatedProtocol == "h2"
}
