package serialize

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

// connection is a client's HTTP/1 connection. net/http notices that it was closed by
// reading from it. It does so only after the request body was read to its end, and if
// the client has sent nothing more. So a request that waits for long checks itself.
type connection struct {
	socket  syscall.RawConn
	cancel  context.CancelFunc // ends the context of the connection's requests
	timer   *time.Timer        // until the next check
	watched atomic.Bool
}

type connectionKey struct{}

// watchConnections gives the connections of a handler's server a context that ends
// when a check finds them closed.
func watchConnections(ctx caddy.Context) {
	if !canSeeHangUp {
		return
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterConnContext(withConnection)
	}
}

// withConnection is called once for each handler of the server.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if ctx.Value(connectionKey{}) != nil {
		return ctx
	}
	socket := socketOf(conn)
	if socket == nil {
		return ctx
	}
	c := &connection{socket: socket}
	ctx, c.cancel = context.WithCancel(ctx)
	c.timer = time.AfterFunc(watchPeriod, c.check)
	c.timer.Stop()
	return context.WithValue(ctx, connectionKey{}, c)
}

// watchPeriod is the time between two checks for a waiting request.
const watchPeriod = 300 * time.Millisecond

// watchClient ends the context of a request when its client hangs up, until
// unwatch is called. It returns nil if the connection cannot be checked.
func watchClient(r *http.Request) *connection {
	if !canSeeHangUp || r.ProtoMajor != 1 {
		return nil
	}
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return nil
	}
	c.watched.Store(true)
	c.timer.Reset(watchPeriod)
	return c
}

// unwatch ends the watch. A check that has begun may still find that the client has
// gone, which is true then, too.
func (c *connection) unwatch() {
	if c == nil {
		return
	}
	c.watched.Store(false)
	c.timer.Stop()
}

func (c *connection) check() {
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
