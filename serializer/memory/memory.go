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

	mu   sync.Mutex // held while tickets are numbered and reported, so that they are in order
	last uint64
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
		path:  cmp.Or(o.Path, "memory"),
		clock: o.Clock,
		owner: &serializer.Owner{Name: fmt.Sprintf("pid %d", os.Getpid()), Alive: true},
	}
}

// Immediate implements [serializer.Immediate].
func (s *Store) Immediate() {}

// Path returns [Options.Path], or "memory" if that is empty.
func (s *Store) Path() string { return s.path }

// Follow implements [serializer.Store].
func (s *Store) Follow(events serializer.Events) {
	if s.events != nil {
		panic("memory: a second engine on a store: give each engine its own, or share the engine")
	}
	s.events = events
}

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

// Pause implements [serializer.Store].
func (s *Store) Pause(_ context.Context, name string, until time.Time) error {
	s.events.Paused(name, until)
	return nil
}

// Resume implements [serializer.Store].
func (s *Store) Resume(ctx context.Context, name string) error {
	return s.Pause(ctx, name, time.Time{})
}

// Close implements [serializer.Store].
func (s *Store) Close() error { return nil }

// Interface guard
var _ serializer.Immediate = (*Store)(nil)
