package testcaddy

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// AwaitOneListener waits until only one socket listens at an address. After a reload, that of
// the old configuration remains for a moment, and takes connections down with it.
func AwaitOneListener(t testing.TB, addr string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		time.Sleep(200 * time.Millisecond) // it does not list its sockets in files
	}
	// A line has the number, the local address, the remote one, and the state: 0A listens.
	listener := regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F:]+ 0A `, netip.MustParseAddrPort(addr).Port()))
	wait.Until(t, "one socket listens at "+addr, func() bool {
		v4, _ := os.ReadFile("/proc/net/tcp")
		v6, _ := os.ReadFile("/proc/net/tcp6")
		return len(listener.FindAll(append(v4, v6...), -1)) < 2
	})
}
