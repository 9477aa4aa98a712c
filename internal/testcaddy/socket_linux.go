package testcaddy

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// AwaitOneListener waits until only one socket listens at an address. After a reload, the
// socket of the old configuration remains for a moment, and takes connections down with
// it.
func AwaitOneListener(t testing.TB, addr string) {
	t.Helper()
	wait.Eventually(t, "one socket listens at "+addr, func() error {
		if n := sockets(addr, "0A", ""); n > 1 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
}

// AwaitAllRead waits until a number of connections to an address are open whose data has
// all been read.
func AwaitAllRead(t testing.TB, addr string, connections int) {
	t.Helper()
	wait.Eventually(t, "all is read that was sent to "+addr, func() error {
		if n := sockets(addr, "01", ":00000000"); n < connections {
			return fmt.Errorf("of %d connections only", n)
		}
		return nil
	})
}

// sockets counts the sockets of a port in a state. That is 0A for listening sockets, 01
// for connections. queues is the end of the sizes of their send and receive queues.
func sockets(addr, state, queues string) (n int) {
	port := fmt.Sprintf(":%04X", netip.MustParseAddrPort(addr).Port())
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// The number, the local address, the remote one, the state, the bytes to send and to read.
			fields := strings.Fields(line)
			if len(fields) > 4 && strings.HasSuffix(fields[1], port) && fields[3] == state && strings.HasSuffix(fields[4], queues) {
				n++
			}
		}
	}
	return n
}
