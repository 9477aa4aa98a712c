package serializer

import (
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
)

// removeTicket removes the file of a local ticket that is over.
func (d *directory) removeTicket(t *ticket) {
	d.removed(t.name, true, d.sys.leave(t.name, t.Stamp))
	if t.marked.Load() {
		d.removeFile(insideName(t.Stamp))
	}
}

// removeDismissed removes the files of refused tickets. A file that was still being made is
// removed when it has been made; see noteMade.
func (d *directory) removeDismissed(tickets ...*ticket) {
	for _, t := range tickets {
		if t.linked { // which changes no more
			d.removeTicket(t)
		}
	}
}

// removeFile removes any other file.
func (d *directory) removeFile(name string) { d.removed(name, false, d.sys.remove(name)) }

// removed records a file that could not be removed, so that the monitor tries again. ours
// says whether it belongs to a local ticket. A directory is not removed: another program
// made it.
func (d *directory) removed(name string, ours bool, err error) {
	path := filepath.Join(d.path, name)
	switch {
	case err == nil:
		return
	case errors.Is(err, errNotFile):
		d.logRepeated(slog.LevelError, "a directory has the name of a lock file; remove it by hand", "path", path)
		return
	}
	d.logRepeated(slog.LevelError, "a lock file could not be removed; trying again", "path", path, "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leftovers[name] = ours
}

// clearLeftovers tries to remove the leftover files again.
func (d *directory) clearLeftovers() {
	d.mu.Lock()
	names := slices.Collect(maps.Keys(d.leftovers))
	d.mu.Unlock()
	for _, name := range names {
		if d.sys.remove(name) == nil {
			d.mu.Lock()
			delete(d.leftovers, name)
			d.mu.Unlock()
		}
	}
}

// owesRemovalLocked reports whether other processes wait for a file that this process
// must remove. Files of dead owners and of other programs do not keep the directory open:
// the next process will find them.
func (d *directory) owesRemovalLocked() bool {
	for _, ours := range d.leftovers {
		if ours {
			return true
		}
	}
	return false
}
