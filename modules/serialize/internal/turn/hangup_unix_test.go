//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package turn

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// A client that has hung up is noticed although what it sent is unread. Bug: only on Linux and
// FreeBSD.
func TestHungUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, sent := range []string{"", "unread"} {
		client, dialed := net.Dial("tcp", listener.Addr().String())
		server, accepted := listener.Accept()
		if err := errors.Join(dialed, accepted); err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		defer server.Close()
		socket, _ := server.(*net.TCPConn).SyscallConn()
		if _, err := io.WriteString(client, sent); err != nil || hungUp(socket) {
			t.Errorf("%q sent: %v, or it has hung up", sent, err)
		}
		_ = client.(*net.TCPConn).CloseWrite()
		wait.Until(t, "it has hung up", func() bool { return hungUp(socket) })
	}
}
