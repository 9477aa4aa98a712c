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
		if n := listeners(addr); n > 1 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
}

// listeners counts the sockets that listen at an address.
func listeners(addr string) (n int) {
	port := fmt.Sprintf(":%04X", netip.MustParseAddrPort(addr).Port())
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// The number, the local address, the remote one, and the state: 0A listens.
			fields := strings.Fields(line)
			if len(fields) > 4 && strings.HasSuffix(fields[1], port) && fields[3] == "0A" {
				n++
			}
		}
	}
	return n
}
