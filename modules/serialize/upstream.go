package serialize

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// upstream is the connection on which a proxy hands on a body that is still
// being sent. Where the client breaks off, the proxy closes the connection and
// has done, but the upstream, which began at the head, may work on. So the
// connection is kept open until the upstream closes it. The upstream sees the end
// of what it can read, as from any client that breaks off.
//
// A connection is known only while a request is written to it: from the end of
// its head until net/http says that it was written, which comes before the
// connection can go back to the transport's idle pool. So the connection of another request is never
// touched. Where two requests are written at once, as by a handler that reads
// what the proxy before it still sends, it is the first one's, until either has
// been written.
type upstream struct {
	mu   sync.Mutex
	got  net.Conn // of the proxy, before the head is written
	conn net.Conn // to which the proxy writes the body
	kept net.Conn // the same socket, once the body has broken off
	done bool     // nobody waits for the upstream any more
}

// following is the next handler, with an eye on the upstream of a body which
// was not read to its end before the ticket.
func (v *visit) following(next caddyhttp.Handler) caddyhttp.Handler {
	if v.body == nil || v.body.ended || v.handler.OnDisconnect != onDisconnectFinish {
		return next
	}
	u := new(upstream)
	v.body.upstream = u
	return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		hold := r.Context()
		err := serveIn(httptrace.WithClientTrace(hold, u.trace()), w, r, next)
		u.await(hold)
		return err
	})
}

func (u *upstream) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { u.take(got.Conn) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.HasPrefix(name, ":") {
				u.take(nil) // HTTP/2: the connection is not this request's own
			}
		},
		WroteHeaders: u.use,
		// Not PutIdleConn: when that is called, another request may have the connection.
		WroteRequest: func(httptrace.WroteRequestInfo) { u.forget() },
	}
}

// take notes the connection on which a request will be written.
func (u *upstream) take(conn net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.got = conn
}

// use makes that connection the one to which the body is written.
func (u *upstream) use() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conn == nil {
		u.conn = u.got
	}
	u.got = nil
}

// forget leaves the connection to the transport.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.got, u.conn = nil, nil
}

// breakOff tells the upstream that nothing more will come, and keeps its
// connection. It does nothing for no upstream, and where the connection is not
// known: of transports other than http, and over HTTP/2.
func (u *upstream) breakOff() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conn == nil || u.kept != nil || u.done {
		return
	}
	if socket := socketOf(u.conn); socket != nil {
		u.kept = halfClosed(socket)
	}
}

// await returns when the upstream has closed the connection that was kept, if
// any, or the hold is over.
func (u *upstream) await(hold context.Context) {
	u.mu.Lock()
	kept := u.kept
	u.done = true
	u.mu.Unlock()
	if kept == nil {
		return
	}
	defer func() { _ = kept.Close() }()
	defer context.AfterFunc(hold, func() { _ = kept.Close() })()
	_, _ = io.Copy(io.Discard, kept)
}

// readRest reads what comes inside.
func (b *heldBody) readRest(p []byte) (int, error) {
	b.restMu.Lock()
	defer b.restMu.Unlock()
	n, err := b.rest.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.upstream.breakOff()
	}
	return n, err
}
