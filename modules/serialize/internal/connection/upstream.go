package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Upstream is the connection on which a proxy passes on a body that is still
// being sent. If the body breaks off, the proxy closes the connection and is
// done. But the upstream, which began at the head, may work on. So the connection
// is kept open until the upstream closes it. The upstream sees the end of what it
// can read, as from any client that breaks off.
//
// A connection is known only while a request is written to it: from the end of its
// head until net/http says that it was written. Only after that can the connection
// go back to the transport's idle pool. So the connection of another request is
// never touched.
//
// Two requests are written at once if a handler reads what the proxy before it still
// sends. Each gets a part of the body, and net/http does not say which of them breaks
// off. So both connections are kept, and the one that net/http has not closed is given
// up.
type Upstream struct {
	mu      sync.Mutex
	got     net.Conn   // of the proxy, before the head is written
	writing []net.Conn // to which the proxies write the body
	kept    []keptConn // once a body has broken off
	done    bool       // nobody waits for the upstream any more
}

// keptConn is a socket that has broken off, or one beside it.
type keptConn struct {
	socket syscall.RawConn // as net/http has it
	half   net.Conn        // the same, kept open
}

// isClosed reports whether net/http has closed the connection, as it does with one on
// which the body broke off.
func (k keptConn) isClosed() bool { return k.socket.Control(func(uintptr) {}) != nil }

// Trace learns the connection from the requests of proxies.
func (u *Upstream) Trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { u.take(got.Conn) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.HasPrefix(name, ":") {
				u.take(nil) // HTTP/2: the connection is not this request's own
			}
		},
		WroteHeaders: u.use,
		// Not PutIdleConn: when that is called, another request may have the connection.
		WroteRequest: func(info httptrace.WroteRequestInfo) { u.wrote(info.Err) },
	}
}

// take notes the connection on which a request will be written.
func (u *Upstream) take(conn net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.got = conn
}

// use makes that connection one to which the body is written.
func (u *Upstream) use() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.got != nil {
		u.writing = append(u.writing, u.got)
	}
	u.got = nil
}

// wrote leaves the connection to the transport once its request is written. If the body
// broke off, it keeps the connection. It cannot do that for transports other than http,
// nor over HTTP/2: there, no connection is known. A proxy that has its answer closes the
// body before its end; its upstream is not waited for.
func (u *Upstream) wrote(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		u.keepLocked()
	case len(u.writing) == 1:
		u.writing = nil
	}
}

func (u *Upstream) keepLocked() {
	if u.done {
		return
	}
	for _, conn := range u.writing {
		if socket := socketOf(conn); socket != nil {
			if half := duplicate(socket); half != nil {
				u.kept = append(u.kept, keptConn{socket, half})
			}
		}
	}
	u.writing = nil
}

// Await ends the sending half of the connections that were kept, if any. It returns when
// the upstreams have closed them, or the hold is over.
func (u *Upstream) Await(hold context.Context) {
	u.mu.Lock()
	kept := u.kept
	u.kept, u.done = nil, true
	u.mu.Unlock()
	for _, k := range kept {
		defer func() { _ = k.half.Close() }()
	}
	kept = slices.DeleteFunc(kept, func(k keptConn) bool { return !k.isClosed() || closeWrite(k.half) != nil })
	for _, k := range kept {
		defer context.AfterFunc(hold, func() { _ = k.half.Close() })()
		_, _ = io.Copy(io.Discard, k.half)
	}
}

// closeWrite closes the sending half of a connection.
func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
