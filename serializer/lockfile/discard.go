//go:build unix && !aix && !solaris

package lockfile

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Discard makes Close remove the directories that [Open] has made, if no ticket was ever
// taken there and nobody else is there. A configuration that is rejected leaves nothing.
func (s *Store) Discard() { s.unused.Store(true) }

// removeMade removes what Open has made, up to the first directory that is not empty.
func (s *Store) removeMade() {
	for _, path := range s.made {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return
		}
	}
}

// removeGuard removes the guard and the owner file of an unused directory. Somebody may open
// the guard at this moment: like any guard that was replaced, it issues no tickets.
func (d *directory) removeGuard() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if len(d.made) == 0 || d.guard.Lock(ctx) != nil {
		return false
	}
	defer d.guard.Unlock()
	if last, err := d.guard.Last(); err != nil || last > 0 || !d.sys.Here() || d.guard.Check() != nil {
		return false
	}
	mine := []string{name.Guard}
	if d.own != nil { // else there was no room for it
		mine = []string{d.own.Name, name.Guard}
	}
	names, err := d.sys.List()
	if err != nil || slices.ContainsFunc(names, func(file string) bool { return !slices.Contains(mine, file) }) {
		return false
	}
	return !slices.ContainsFunc(mine, func(file string) bool { return d.sys.Unlink(file) != nil })
}
