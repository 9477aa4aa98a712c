// Package connection watches the sockets below requests: clients that hang up while they
// wait, upstreams that work on, and requests of this process to itself.
package connection

import (
	"context"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Client is a client's HTTP/1 connection. net/http notices that it was closed by
// reading from it. It does so only after the request body was read to its end, and if
// the client has sent nothing more. So a request that waits for long checks itself.
type Client struct {
	socket  syscall.RawConn
	cancel  context.CancelFunc // ends the context of the connection's requests
	timer   *time.Timer        // until the next check
	watched atomic.Bool
}

type clientKey struct{}

// Register gives the connections of a handler's server a context that ends
// when a check finds them closed.
func Register(ctx caddy.Context) {
	if !canSeeHangUp {
		return
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterConnContext(withClient)
	}
}

// withClient is called once for each handler of the server.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	if ctx.Value(clientKey{}) != nil {
		return ctx
	}
	socket := socketOf(conn)
	if socket == nil {
		return ctx
	}
	c := &Client{socket: socket}
	ctx, c.cancel = context.WithCancel(ctx)
	c.timer = time.AfterFunc(watchPeriod, c.check)
	c.timer.Stop()
	return context.WithValue(ctx, clientKey{}, c)
}

// watchPeriod is the time between two checks for a waiting request.
const watchPeriod = 300 * time.Millisecond

// Watch ends the context of a request when its client hangs up, until
// Unwatch is called. It returns nil if the connection cannot be checked.
func Watch(r *http.Request) *Client {
	if !canSeeHangUp || r.ProtoMajor != 1 {
		return nil
	}
	c, ok := r.Context().Value(clientKey{}).(*Client)
	if !ok {
		return nil
	}
	c.watched.Store(true)
	c.timer.Reset(watchPeriod)
	return c
}

// Unwatch ends the watch. A check that has begun may still find that the client has
// gone, which is true then, too.
func (c *Client) Unwatch() {
	if c == nil {
		return
	}
	c.watched.Store(false)
	c.timer.Stop()
}

func (c *Client) check() {
	switch {
	case !c.watched.Load():
	case hungUp(c.socket):
		c.cancel()
	default:
		c.timer.Reset(watchPeriod)
	}
}

// socketOf finds the socket below a connection, through the wrappers of TLS, of
// listeners and of Caddy. It returns nil if there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	for conn != nil {
		switch c := conn.(type) {
		case syscall.Conn:
			socket, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			return socket
		case interface{ NetConn() net.Conn }: // crypto/tls
			conn = c.NetConn()
		case interface{ Raw() net.Conn }: // the PROXY protocol
			conn = c.Raw()
		default:
			conn = embeddedConn(conn)
		}
	}
	return nil
}

// embeddedConn is the connection that a wrapper of Caddy embeds, or nil. The wrapper
// has no method that returns it.
func embeddedConn(conn net.Conn) net.Conn {
	wrapper := reflect.Indirect(reflect.ValueOf(conn))
	if wrapper.Kind() != reflect.Struct {
		return nil
	}
	field := wrapper.FieldByName("Conn")
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	embedded, _ := field.Interface().(net.Conn)
	return embedded
}
