//go:build unix && !aix && !solaris

package testcaddy

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// ReserveAddr returns an address of this machine that only Caddy can use until the end of
// the test. Caddy shares ports (SO_REUSEPORT) with other sockets of the same user that do
// the same: here, with a socket that does not listen.
func ReserveAddr(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("reserving a port: %v", err)
	}
	unix.CloseOnExec(fd)
	t.Cleanup(func() { _ = unix.Close(fd) })
	port, err := bindShared(fd)
	if err != nil {
		t.Fatalf("reserving a port: %v", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func bindShared(fd int) (port int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return addr.(*unix.SockaddrInet4).Port, nil
}
