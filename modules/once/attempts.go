package once

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
)

// attempts watches how the request is sent to upstreams. net/http sends a request without a body
// again, by itself, if it has an Idempotency-Key and its kept connection breaks. A proxy may try
// another upstream. The first upstream may have acted, so attempts prevents both.
type attempts struct {
	repl *caddy.Replacer // with what Caddy's proxy notes
	cut  func(cause error)

	sent    atomic.Bool             // at least a part of the request may have been sent
	open    atomic.Bool             // and no answer has come since, as far as net/http tells
	shared  atomic.Bool             // it was sent by HTTP/2
	dialed  atomic.Bool             // by any transport, such as that of FastCGI
	earlier atomic.Bool             // it may have been sent to an upstream that was not the latest
	latest  atomic.Pointer[attempt] // or nil
}

// attempt is what Caddy's proxy had noted when net/http asked for a connection. Over FastCGI, which does
// not, it is made with the connection, and has no address.
type attempt struct{ address, latency any }

var errSentOnce = errors.New("the connection to the upstream broke after the request had been sent, and it is not sent again")

const proxyPlaceholder, statusPlaceholder = "http.reverse_proxy.upstream.", "http.reverse_proxy.status_code"

// forgetNotes forgets what proxies before have noted.
func (a *attempts) forgetNotes() {
	a.repl.DeleteByPrefix(proxyPlaceholder)
	a.repl.Delete(statusPlaceholder)
}

// noted is what Caddy's proxy has noted of the upstream that it has chosen last, or nil.
func (a *attempts) noted(what string) any {
	value, _ := a.repl.Get(proxyPlaceholder + what)
	return value
}

// ask begins an attempt by net/http, unless no answer has come to the latest one.
func (a *attempts) ask() {
	if a.isOpen() {
		a.cut(errSentOnce)
		return
	}
	a.begin(a.noted("address"))
}

// begin begins an attempt. If nothing was sent since it began, it may begin again.
func (a *attempts) begin(address any) {
	a.earlier.Store(a.sent.Load())
	a.latest.Store(&attempt{address, a.noted("latency")})
	a.open.Store(false)
	a.shared.Store(false)
}

// isUntraced reports whether net/http has not asked for a connection to the upstream that Caddy's proxy
// has chosen last.
func (a *attempts) isUntraced() bool {
	latest, address := a.latest.Load(), a.noted("address")
	return address != nil && (latest == nil || latest.address != address)
}

// trace returns what net/http and dialers call. Cancelling the request alone would not do: net/http may not
// see it before it writes to a connection that it has already.
func (a *attempts) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { a.ask() },
		DNSDone: func(info httptrace.DNSDoneInfo) {
			if info.Err != nil {
				a.dialed.Store(true)
			}
		},
		ConnectStart: func(network, addr string) {
			if !a.isDNS(network, addr) && a.isUntraced() && a.isOpen() { // a proxy tries again over FastCGI
				a.cut(errSentOnce)
			}
		},
		ConnectDone: func(network, addr string, err error) {
			if a.isDNS(network, addr) {
				return
			}
			a.dialed.Store(true)
			if err == nil && a.isUntraced() {
				a.begin(nil)
				a.sent.Store(true)
				a.open.Store(true)
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			// GetConn is not called for a connection by HTTP/2 whose request hung up while it was dialed.
			a.ask()
			if a.open.Load() && !a.isShared(info.Conn) { // HTTP/2 repeats only what was not processed
				_ = info.Conn.Close()
			}
		},
		WroteHeaderField: func(name string, _ []string) { // once all fields are written, an answer may be there already
			a.sent.Store(true)
			a.open.Store(true)
			if strings.HasPrefix(name, ":") { // only HTTP/2 has such fields; without TLS, nothing else tells
				a.shared.Store(true)
			}
		},
		GotFirstResponseByte: func() {
			if a.noted("address") == nil { // Caddy's proxy notes when it has all of a head
				a.open.Store(false)
			}
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error { a.open.Store(true); return nil },
		PutIdleConn:    func(error) { a.open.Store(false) },
	}
}

// isAnswered reports whether Caddy's proxy has got the head of an answer since the latest attempt began.
// After an interim answer by HTTP/2, nothing else tells.
func (a *attempts) isAnswered() bool {
	latest := cmp.Or(a.latest.Load(), new(attempt))
	return a.noted("latency") != latest.latency
}

// isOpen reports whether no answer has come to the latest attempt. Of others than Caddy's proxy, a part of
// one is taken for it.
func (a *attempts) isOpen() bool { return a.open.Load() && !a.isAnswered() }

// reached reports whether an upstream may have got the request, and whether it has not answered. A
// transport may tell nothing of its connections.
func (a *attempts) reached() (sent, open bool) {
	silent := a.isUntraced() && !a.dialed.Load()
	return silent || a.sent.Load(), silent && !a.isAnswered() || a.isOpen()
}

// wroteNothing reports whether net/http has looked for a connection to the upstream that Caddy's proxy has
// chosen last, and has written to none, such as after a TLS handshake that failed.
func (a *attempts) wroteNothing() bool {
	return a.noted("address") != nil && a.latest.Load() != nil && !a.isUntraced() && !a.sent.Load()
}

// isDNS reports whether a connection is one to a DNS server, which proxies ask for upstreams. One by TCP, at an
// unusual port, is taken for an upstream: its request is in doubt, but never sent twice.
func (a *attempts) isDNS(network, addr string) bool {
	_, port, _ := net.SplitHostPort(addr) // of a Unix socket, there is none
	return strings.HasPrefix(network, "udp") || port == "53" && port != a.noted("port")
}

// isShared reports whether other requests use a connection, too, since it speaks HTTP/2.
func (a *attempts) isShared(conn net.Conn) bool {
	if encrypted, ok := conn.(*tls.Conn); ok {
		return encrypted.ConnectionState().NegotiatedProtocol == "h2"
	}
	return a.shared.Load()
}
