package turn

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"
)

// hangUpTime is how often a waiting client's connection is looked at.
const hangUpTime = 500 * time.Millisecond

// WatchClient returns the context in which a request of an HTTP/1 client waits whose body is
// still to be read. It also ends when the client hangs up. net/http notices that by reading
// from the connection, which it does only after the body. Reading ahead in its place would go
// on beside the handlers, and Caddy counts and limits what is read. So the connection is only
// looked at.
func WatchClient(waiting context.Context, r *http.Request) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(waiting)
	socket := socketOf(r)
	if socket == nil {
		return ctx, stop
	}
	go func() {
		look := time.NewTicker(hangUpTime)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				if hungUp(socket) {
					stop()
				}
			}
		}
	}()
	return ctx, stop
}

// socketOf is the socket below a request's connection, or nil if that does not lead to one.
func socketOf(r *http.Request) syscall.RawConn {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	for {
		switch layer := conn.(type) {
		case syscall.Conn:
			socket, err := layer.SyscallConn()
			if err != nil {
				return nil
			}
			return socket
		case interface{ NetConn() net.Conn }: // TLS
			conn = layer.NetConn()
		case interface{ Raw() net.Conn }: // Caddy's proxy_protocol
			conn = layer.Raw()
		default:
			return nil
		}
	}
}
