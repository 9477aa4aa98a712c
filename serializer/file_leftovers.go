package serializer

import (
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
)

// leftovers are the files that could not be removed.
type leftovers struct {
	mu   sync.Mutex
	ours map[string]bool // by name: whether the file belongs to a local ticket
}

func newLeftovers() *leftovers { return &leftovers{ours: make(map[string]bool)} }

func (l *leftovers) add(name string, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ours[name] = ours
}

func (l *leftovers) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ours, name)
}

func (l *leftovers) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.ours))
}

// haveOurs reports whether other processes wait for a file that this process must remove.
// Files of dead owners and of other programs do not keep the directory open: the next
// process will find them.
func (l *leftovers) haveOurs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ours := range l.ours {
		if ours {
			return true
		}
	}
	return false
}

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
	d.leftovers.add(name, ours)
}

// clearLeftovers tries to remove the leftover files again.
func (d *directory) clearLeftovers() {
	for _, name := range d.leftovers.names() {
		if d.sys.remove(name) == nil {
			d.leftovers.forget(name)
		}
	}
}
