package serializer

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// pauseFile is a pause in a directory.
type pauseFile struct {
	queue string // empty if the name cannot be read
	end   time.Time
	seen  uint64 // the last listing that showed the file or preceded it
}

// notePauseLocked notes a pause file. The pause takes effect at once, so that later
// changes, which are noted next, admit nobody.
func (s *syncer) notePauseLocked(name string) {
	if known := s.pauseFiles[name]; known != nil {
		known.seen = s.listings
		return
	}
	queue, end, _ := parsePause(name)
	s.pauseFiles[name] = &pauseFile{queue, end, s.listings}
	s.found.pauses = append(s.found.pauses, name)
	s.applyPausesLocked()
}

func (s *syncer) noteResumedLocked(name string) {
	if s.pauseFiles[name] != nil {
		delete(s.pauseFiles, name)
		s.applyPausesLocked()
	}
}

// noteMarkLocked notes that a ticket is inside, as its owner says.
func (s *syncer) noteMarkLocked(name string) {
	stamp, ok := parseDigits(strings.TrimPrefix(name, insideFiles))
	if !ok {
		return
	}
	s.queues.marks[stamp] = s.listings
	for _, q := range s.queues.byName {
		if first := q.Border(); q.Paused() && first != nil && first.Stamp == stamp {
			s.advanceLocked(q)
		}
	}
}

func (s *syncer) noteUnmarkedLocked(name string) {
	if stamp, ok := parseDigits(strings.TrimPrefix(name, insideFiles)); ok {
		delete(s.queues.marks, stamp)
	}
}

// sweepPausesLocked forgets the pauses and marks that the listing did not show.
func (s *syncer) sweepPausesLocked() {
	for stamp, seen := range s.queues.marks {
		if seen < s.listings {
			delete(s.queues.marks, stamp)
		}
	}
	for name, file := range s.pauseFiles {
		if file.seen < s.listings {
			s.noteResumedLocked(name)
		}
	}
}

// applyPausesLocked pauses and resumes queues to match the files.
func (d *directory) applyPausesLocked() {
	now := time.Now()
	ends := d.queues.pauses
	clear(ends)
	for _, file := range d.pauseFiles {
		if file.queue != "" && file.end.After(now) && file.end.After(ends[file.queue]) {
			ends[file.queue] = file.end
		}
	}
	for _, q := range d.queues.byName {
		d.queues.setPause(q)
		d.advanceLocked(q)
	}
}

// followPause checks whether a pause file counts, and logs the result.
func (s *syncer) followPause(name string) {
	path := filepath.Join(s.path, name)
	_, end, err := parsePause(name)
	if err != nil {
		s.logRepeated(slog.LevelError, "a file name looks like a pause but cannot be parsed; it pauses nothing, remove it", "path", path, "error", err)
		return
	}
	_, err = s.sys.identify(name)
	if errors.Is(err, fs.ErrNotExist) || !end.After(time.Now()) {
		return // it has ended
	}
	if errors.Is(err, errNotOurs) && !ofRoot(path) {
		s.mu.Lock()
		if file := s.pauseFiles[name]; file != nil {
			file.queue = ""
			s.applyPausesLocked()
		}
		s.mu.Unlock()
		s.logRepeated(slog.LevelWarn, "a pause file belongs to a user whose files do not count here; it pauses nothing", "path", path)
		return
	}
	s.identifyUnknown() // the owners' files name the tickets' groups
	s.log.Info("a queue is paused", "path", path)
}

// markInside marks the local tickets that are inside paused queues, for all other
// processes.
func (s *syncer) markInside() {
	for _, t := range s.unmarked() {
		name := insideName(t.Stamp)
		if err := s.sys.mark(name); err != nil {
			s.complainAbout(name, err)
			t.marked.Store(false) // the tick tries again
		}
		if s.hasLeft(t) {
			s.removeFile(name)
		}
	}
}

func (d *directory) unmarked() (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queues.pauses) == 0 {
		return nil
	}
	for _, q := range d.queues.byName {
		if !q.Paused() || q.LocalInside() == 0 {
			continue
		}
		for t := range q.All() {
			if t.Local() && t.Admitted() && !t.marked.Swap(true) {
				tickets = append(tickets, t)
			}
		}
	}
	return tickets
}

// endPauses removes the files of pauses that are over, and the marks of tickets that are
// gone: their owners may have died.
func (s *syncer) endPauses() {
	for _, name := range append(s.takeEndedPauses(), s.takeStaleMarks()...) {
		if err := s.sys.remove(name); err != nil && !errors.Is(err, fs.ErrPermission) { // the file may be root's
			s.complainAbout(name, err)
		}
	}
	s.markInside()
}

func (d *directory) takeEndedPauses() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for name, file := range d.pauseFiles {
		if file.queue != "" && !file.end.After(now) {
			names = append(names, name)
			delete(d.pauseFiles, name)
		}
	}
	if names != nil {
		d.applyPausesLocked()
	}
	return names
}

func (d *directory) takeStaleMarks() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queues.marks) == 0 {
		return nil
	}
	standing := make(map[uint64]bool)
	for _, t := range d.tickets {
		standing[t.Stamp] = true
	}
	for stamp := range d.queues.marks {
		if !standing[stamp] {
			names = append(names, insideName(stamp))
			delete(d.queues.marks, stamp)
		}
	}
	return names
}
