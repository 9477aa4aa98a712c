// Package testmutant makes stores that are wrong in one way, which tests must find.
package testmutant

import (
	"context"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Store is a right store, except for the functions that are replaced.
type Store struct {
	serializer.Store
	Events *Events // set by Follow

	DoAppend func(context.Context, []*serializer.Ticket) error
	DoRemove func(*serializer.Ticket)
	DoInside func(*serializer.Ticket) bool
	DoEvict  func(context.Context, *serializer.Ticket) error
	DoPause  func(ctx context.Context, name string, until time.Time) error
	DoClose  func() error

	mutate func(*Store)
}

// Events are what a right store reports, except for the functions that are replaced.
type Events struct {
	serializer.Events // those of the engine

	OnJoined               func(*serializer.Ticket) bool
	OnAppeared, OnVanished func(*serializer.Ticket)
	OnPaused               func(name string, until time.Time)
}

// New makes a store that mutate makes wrong when an engine begins to follow it.
func New(right serializer.Store, mutate func(*Store)) *Store {
	return &Store{
		Store: right, mutate: mutate, DoAppend: right.Append, DoRemove: right.Remove, DoInside: right.Inside,
		DoEvict: right.Evict, DoPause: right.Pause, DoClose: right.Close,
	}
}

// Follow makes the store wrong, and begins to report.
func (s *Store) Follow(to serializer.Events) {
	s.Events = &Events{to, to.Joined, to.Appeared, to.Vanished, to.Paused}
	s.mutate(s)
	s.Store.Follow(s.Events)
}

// Append calls DoAppend.
func (s *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return s.DoAppend(ctx, tickets)
}

// Remove calls DoRemove.
func (s *Store) Remove(t *serializer.Ticket) { s.DoRemove(t) }

// Inside calls DoInside.
func (s *Store) Inside(t *serializer.Ticket) bool { return s.DoInside(t) }

// Evict calls DoEvict.
func (s *Store) Evict(ctx context.Context, t *serializer.Ticket) error { return s.DoEvict(ctx, t) }

// Pause calls DoPause.
func (s *Store) Pause(ctx context.Context, name string, until time.Time) error {
	return s.DoPause(ctx, name, until)
}

// Close calls DoClose.
func (s *Store) Close() error { return s.DoClose() }

// Joined calls OnJoined.
func (e *Events) Joined(t *serializer.Ticket) bool { return e.OnJoined(t) }

// Appeared calls OnAppeared.
func (e *Events) Appeared(t *serializer.Ticket) { e.OnAppeared(t) }

// Vanished calls OnVanished.
func (e *Events) Vanished(t *serializer.Ticket) { e.OnVanished(t) }

// Paused calls OnPaused.
func (e *Events) Paused(name string, until time.Time) { e.OnPaused(name, until) }
