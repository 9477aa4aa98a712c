package turncontext

import (
	"context"
	"net"
	"syscall"
	"time"
)

// hangUpTime is how often the connection of a waiting client is checked.
const hangUpTime = 500 * time.Millisecond

// watchClient is for a request whose body is still to be read. It calls a function when the
// client has hung up, unless the context ends before. net/http notices that by reading from the
// connection, but only after the body. Reading ahead in its place would go on beside the
// handlers, and Caddy counts and limits what is read. So this only asks the socket.
func watchClient(ctx context.Context, hangUp func()) {
	socket := socketOf(ctx)
	if socket == nil {
		return
	}
	for !hungUp(socket) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(hangUpTime):
		}
	}
	hangUp()
}

// socketOf is the socket below a request's connection, or nil if that does not lead to one.
func socketOf(ctx context.Context) syscall.RawConn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	for {
		switch layer := conn.(type) {
		case syscall.Conn:
			socket, _ := layer.SyscallConn() // an error: there is none
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
