//go:build unix

package integration_test

import (
	"os"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// guardFile is the one file that stays in a lock directory for good.
const guardFile = ".orderly-guard"

// lockFiles lists the tickets in a directory.
func lockFiles(t testing.TB, dir string) (names []string) {
	t.Helper()
	for _, name := range fileNames(t, dir) {
		if !strings.HasPrefix(name, ".orderly-") {
			names = append(names, name)
		}
	}
	return names
}

func fileNames(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// awaitTickets waits until there are n tickets in the lock directory. A ticket is removed
// after the turn has been handed on.
func (c *caddy) awaitTickets(n int) {
	c.t.Helper()
	if !wait.Poll(wait.Patience, func() bool { return len(lockFiles(c.t, c.dir)) == n }) {
		c.t.Fatalf("%d tickets in the lock directory: not so after %v, but %v", n, wait.Patience, lockFiles(c.t, c.dir))
	}
}

// wantOnlyGuard fails the test if anything but the guard file is left in the
// lock directory.
func (c *caddy) wantOnlyGuard() {
	c.t.Helper()
	for _, name := range fileNames(c.t, c.dir) {
		if name != guardFile {
			c.t.Errorf("left in the lock directory: %s", name)
		}
	}
}
