package load

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dial connects, through a line that carries so many bytes a second to the client,
// or at once where that is 0.
func dial(ctx context.Context, addr string, rate int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	if rate == 0 {
		return dialer.DialContext(ctx, "tcp", addr)
	}
	dialer.Control = narrow
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &line{Conn: conn, rate: rate}, nil
}

// narrow makes a connection within this machine take as little on its way as one over
// the Internet: segments of Ethernet's size, for by their size the server's kernel
// measures how much it takes off the server, and a small buffer at the receiver.
func narrow(_, _ string, c syscall.RawConn) (err error) {
	controlled := c.Control(func(fd uintptr) {
		err = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1460),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<10))
	})
	return errors.Join(controlled, err)
}

// line is a connection whose bytes arrive no faster than its rate.
type line struct {
	net.Conn
	rate int // bytes a second
	free time.Time
}

// pace is the least time between two reads: many lines must not cost much.
const pace = 50 * time.Millisecond

// Read implements [net.Conn].
func (l *line) Read(p []byte) (int, error) {
	time.Sleep(time.Until(l.free))
	n, err := l.Conn.Read(p[:min(len(p), max(1, l.rate/int(time.Second/pace)))])
	began := l.free
	if now := time.Now(); now.Sub(began) > pace { // it had nothing to carry
		began = now
	}
	l.free = began.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	return n, err
}
