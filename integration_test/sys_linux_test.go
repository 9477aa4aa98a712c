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
	eventually(c.t, patience, "one socket listens", func() bool { return c.sockets("0A", "") <= 1 })
}

// awaitAllRead waits until so many connections are open of which all is read.
func (c *caddy) awaitAllRead(n int) {
	c.t.Helper()
	eventually(c.t, patience, "all is read", func() bool { return c.sockets("01", ":00000000") >= n })
}

// sockets counts the sockets of the site's port in a state, 0A for those that listen
// and 01 for connections, with such an end of what waits to be sent and to be read.
func (c *caddy) sockets(state, queues string) (n int) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// The number, the local address, the remote one, the state, the bytes to send and to read.
			fields := strings.Fields(line)
			if len(fields) > 4 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", c.port)) && fields[3] == state && strings.HasSuffix(fields[4], queues) {
				n++
			}
		}
	}
	return n
}
