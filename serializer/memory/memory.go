// Package memory keeps the tickets of an engine within one process, without a disk. A
// restart forgets them, and other processes know nothing of them. It is the simplest
// store, and the reference for the others.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Store is a [serializer.Store] that numbers tickets and keeps nothing.
type Store struct {
	path   string
	clock  func() time.Time
	owner  *serializer.Owner
	events serializer.Events

	mu     sync.Mutex // held while tickets are numbered and reported, so that they are in order
	last   uint64
	pauses map[string]*pause
}

// Options adjust a [Store]. The zero value suits most uses.
type Options struct {
	Path  string           // returned by Path; empty means "memory"
	Clock func() time.Time // the time for ticket numbers; nil means [time.Now]
}

// New makes a store.
func New(o Options) *Store {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Store{
		path:   cmp.Or(o.Path, "memory"),
		clock:  o.Clock,
		owner:  &serializer.Owner{Name: fmt.Sprintf("pid %d", os.Getpid()), Alive: true},
		pauses: make(map[string]*pause),
	}
}

// Immediate implements [serializer.Immediate].
func (s *Store) Immediate() {}

// Path returns [Options.Path], or "memory" if that is empty.
func (s *Store) Path() string { return s.path }

// Follow implements [serializer.Store].
func (s *Store) Follow(events serializer.Events) { s.events = events }

// Append implements [serializer.Store]. A number is the time in microseconds, but always
// greater than the last one, whatever the clock does.
func (s *Store) Append(_ context.Context, tickets []*serializer.Ticket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tickets {
		s.last = max(uint64(max(s.clock().UnixMicro(), 1)), s.last+1)
		t.Number, t.Owner = s.last, s.owner
		t.Arrived = time.UnixMicro(int64(t.Number))
		s.events.Joined(t)
	}
	return nil
}

// Remove implements [serializer.Store].
func (s *Store) Remove(*serializer.Ticket) {}

// SetInside implements [serializer.Store].
func (s *Store) SetInside(*serializer.Ticket, bool) {}

// Inside implements [serializer.Store]. There are no tickets of other processes.
func (s *Store) Inside(*serializer.Ticket) bool { return false }

// Sync implements [serializer.Store].
func (s *Store) Sync(context.Context) error { return nil }

// Evict implements [serializer.Store].
func (s *Store) Evict(context.Context, *serializer.Ticket) error { return serializer.ErrNoTicket }

// pause is the pause of one name. Its timer ends it.
type pause struct{ timer *time.Timer }

// Pause implements [serializer.Store].
func (s *Store) Pause(_ context.Context, name string, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(name)
	p := new(pause)
	p.timer = time.AfterFunc(time.Until(until), func() { s.expire(name, p) }) // Forever is centuries away
	s.pauses[name] = p
	s.events.Paused(name, until)
	return nil
}

// Resume implements [serializer.Store].
func (s *Store) Resume(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pauses[name] != nil {
		s.endLocked(name)
		s.events.Paused(name, time.Time{})
	}
	return nil
}

// expire ends a pause whose time has come, unless another one has replaced it.
func (s *Store) expire(name string, p *pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pauses[name] == p {
		s.endLocked(name)
		s.events.Paused(name, time.Time{})
	}
}

// endLocked forgets a pause, if there is one.
func (s *Store) endLocked(name string) {
	if p := s.pauses[name]; p != nil {
		p.timer.Stop()
		delete(s.pauses, name)
	}
}

// Close implements [serializer.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.pauses {
		s.endLocked(name)
	}
	return nil
}

// Interface guard
var _ serializer.Immediate = (*Store)(nil)
