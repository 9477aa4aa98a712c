package integration_test

import (
	"fmt"
	"os"
	"strings"
)

// awaitOneListener waits until one socket only listens on the site's port. After
// a reload, that of the old configuration is there for a moment longer, and
// takes connections down with it.
func (c *caddy) awaitOneListener() {
	c.t.Helper()
	eventually(c.t, patience, "one socket listens", func() bool { return listeners(c.port) <= 1 })
}

// listeners counts the sockets that listen on a port.
func listeners(port int) (n int) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// The number, the local address, the remote one, the state.
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) && fields[3] == "0A" {
				n++
			}
		}
	}
	return n
}
