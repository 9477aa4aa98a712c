package serializer

import (
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

// An unowned file has the form of a ticket, but is not linked to an owner file. It comes
// from another program, such as mod_serializer, or from a person. Arrivals wait for it,
// but no lock says whether anybody still needs it.

const (
	// unownedTime is the age at which an unowned file counts as abandoned.
	unownedTime = 5 * time.Minute

	// unownedText is the owner of an unowned file, as shown to people.
	unownedText = "not a ticket of Orderly"
)

// unownedFiles records how long unowned files have existed, across all directories in
// which an engine works.
type unownedFiles struct {
	mu    sync.Mutex
	since map[string]time.Time // by name
}

func newUnownedFiles() *unownedFiles { return &unownedFiles{since: make(map[string]time.Time)} }

// note records a file with its age, unless the file is already known.
func (u *unownedFiles) note(name string, age time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.since[name]; !ok {
		u.since[name] = time.Now().Add(-age)
	}
}

// age returns how old a file is; 0 if that is not known.
func (u *unownedFiles) age(name string) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if since, ok := u.since[name]; ok {
		return time.Since(since)
	}
	return 0
}

func (u *unownedFiles) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, name)
}

// noteUnowned notes that no process of Orderly owns a ticket. The first age is read from
// the file system's clock, so the count does not restart with each process. From then on,
// it follows a clock that nobody can set.
func (s *syncer) noteUnowned(t *ticket) {
	age := s.sys.age(t.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.out {
		return
	}
	s.unowned.note(t.name, age)
	t.owner = unownedText
	t.unowned = true
	t.queue.Identify(t, t.Rule) // which remains the strictest rule
	s.advanceLocked(t.queue)
}

// abandonUnowned removes unowned files that are too old, and logs a younger one if a
// local ticket waits for it.
func (s *syncer) abandonUnowned() {
	for _, t := range s.remoteTickets(func(t *ticket) bool { return t.unowned && !t.known }) {
		age := s.unowned.age(t.name)
		switch {
		case age > s.unownedTime:
			s.abandon(t)
		case !t.announced && s.blocks(t):
			s.announce(t, age)
		}
	}
}

// blocks reports whether a local ticket waits in a ticket's queue.
func (d *directory) blocks(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.queue.blocked
}

func (s *syncer) abandon(t *ticket) {
	s.logRepeated(slog.LevelWarn, "a lock file that belongs to no process of Orderly counts as abandoned",
		"path", s.path, "file", t.name, "after", s.unownedTime)
	s.removeFile(t.name)
	s.forget(t)
}

func (s *syncer) announce(t *ticket, age time.Duration) {
	t.announced = true
	s.logRepeated(slog.LevelWarn, "waiting for a lock file that belongs to no process of Orderly; remove it if nothing needs it",
		"path", filepath.Join(s.path, t.name), "age", age.Round(time.Second), "abandoned after", s.unownedTime)
}
