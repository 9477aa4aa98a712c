//go:build unix

package integration_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// reservePort finds a free port and keeps it from everybody but Caddy, which
// shares ports (SO_REUSEPORT) with others of the same user that do: here with a
// socket that does not listen. Another user's Caddy gets a port that is merely
// free right now.
func reservePort(t testing.TB, other *user) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	check(t, err)
	release := func() { _ = unix.Close(fd) }
	if other == nil {
		unix.CloseOnExec(fd)
		t.Cleanup(release)
	} else {
		defer release()
	}
	check(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	check(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	addr, err := unix.Getsockname(fd)
	check(t, err)
	return addr.(*unix.SockaddrInet4).Port
}
