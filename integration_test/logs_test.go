//go:build unix

package integration_test

import (
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

type entry = testprocess.Entry

// awaitEntryOf waits until the log has an entry with a message, and returns the
// first one.
func (c *caddy) awaitEntryOf(message string) entry {
	c.t.Helper()
	return c.awaitEntry("the log says "+message, func(e entry) bool { return e["msg"] == message })
}

func (c *caddy) awaitEntry(what string, wanted func(entry) bool) entry {
	c.t.Helper()
	var found []entry
	wait.Until(c.t, what, func() bool {
		found = c.Log.All(wanted)
		return len(found) > 0
	})
	return found[0]
}

// awaitEntries waits for a number of lines with a message.
func (c *caddy) awaitEntries(message string, n int) (found []entry) {
	c.t.Helper()
	wait.Until(c.t, "the log has all lines "+message, func() bool {
		found = c.Log.Entries(message)
		return len(found) == n
	})
	return found
}
