//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"os"
	"slices"

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

// removeGuard removes the guard and the owner file of a directory that Open has made, and that
// nobody has used. Somebody may open the guard at this moment: like any guard that was replaced,
// it issues no tickets.
func (d *directory) removeGuard() bool {
	last, lastErr := d.guard.Last()
	names, err := d.sys.List()
	others := func(file string) bool { return file != name.Guard && file != d.own.Name }
	if len(d.made) == 0 || last > 0 || cmp.Or(lastErr, err) != nil || slices.ContainsFunc(names, others) {
		return false
	}
	return cmp.Or(d.sys.Unlink(d.own.Name), d.sys.Unlink(name.Guard)) == nil
}
