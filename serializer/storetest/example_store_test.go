package storetest_test

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Store keeps tickets in the tables of a database. Each process has one.
type Store struct {
	db     *Database
	owner  *serializer.Owner
	events serializer.Events
	ctx    context.Context // until Close
	stop   context.CancelFunc

	mu      sync.Mutex                    // held from a transaction until its result is reported
	version uint64                        // of the last change that was reported
	tickets map[uint64]*serializer.Ticket // by number
	leaving []uint64                      // numbers of own ones to be marked as gone
}

// What a row says of its ticket, and Ticket.Ref.
const joining, waiting, inside = 0, 1, 2

func Open(db *Database, owner string) *Store {
	s := &Store{db: db, owner: &serializer.Owner{Name: owner, Alive: true}, tickets: make(map[uint64]*serializer.Ticket)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *Store) Path() string                     { return "table:tickets" }
func (s *Store) Sync(ctx context.Context) error   { return s.do(ctx, func(*Tx) {}) }
func (s *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref) == inside }

func (s *Store) Follow(events serializer.Events) {
	s.events = events
	go s.db.Listen(s.ctx, func() { _ = s.Sync(s.ctx) })
}

// do marks tickets as gone, executes statements, reads what has changed, all in one transaction, and reports it.
func (s *Store) do(ctx context.Context, statements func(*Tx)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes, err := s.db.Transaction(ctx, s.leaving, statements, s.version)
	if err == nil {
		s.version, s.leaving = changes.Version, nil
		for _, p := range changes.Pauses {
			s.events.Paused(p.Name, p.Until)
		}
		for _, r := range changes.Tickets {
			s.reportLocked(r, s.tickets[r.Number], r.Owner == s.owner.Name)
		}
	}
	maps.DeleteFunc(s.tickets, func(_ uint64, t *serializer.Ticket) bool { return t.Ref == joining }) // of a failed Append
	return err
}

// reportLocked reports that a row is new or has changed. t is its ticket, nil if it is not known.
func (s *Store) reportLocked(r Row, t *serializer.Ticket, own bool) {
	switch {
	case r.Gone && t != nil:
		delete(s.tickets, r.Number)
		if own {
			s.events.Removed(t) // somebody has changed the table
		} else {
			s.events.Vanished(t)
		}
	case r.Gone: // its removal, or one that was never known
	case t == nil && !own:
		t = &serializer.Ticket{Queue: r.Queue, Number: r.Number, Client: r.Client, Arrived: r.Arrived, Ref: r.State}
		t.Rule, t.Owner = r.Rule, &serializer.Owner{Name: r.Owner, Alive: true}
		s.tickets[r.Number] = t
		s.events.Appeared(t)
	case t == nil || t.Ref == joining && !s.events.Joined(t): // of a failed Append after all, or unwanted
		delete(s.tickets, r.Number)
		s.leaving = append(s.leaving, r.Number)
		go s.Sync(s.ctx)
	case r.Evict && own:
		s.events.Evict(r.Queue, r.Number)
	default:
		atomic.StoreUint64(&t.Ref, r.State)
	}
}

func (s *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return s.do(ctx, func(tx *Tx) {
		for _, t := range tickets {
			t.Number, t.Arrived, t.Owner = tx.NextNumber(), time.Now(), s.owner
			s.tickets[t.Number] = t
			tx.Insert(Row{Number: t.Number, Queue: t.Queue, Client: t.Client, Rule: t.Rule, Arrived: t.Arrived, Owner: s.owner.Name, State: waiting})
		}
	})
}

func (s *Store) Remove(t *serializer.Ticket) {
	s.mu.Lock()
	if s.tickets[t.Number] == t {
		delete(s.tickets, t.Number)
		s.leaving = append(s.leaving, t.Number)
	}
	s.mu.Unlock()
	_ = s.Sync(s.ctx) // if it fails, the next transaction does it: Listen tries again soon
}

func (s *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go s.do(s.ctx, func(tx *Tx) { tx.SetState(t.Number, inside) })
	}
}

func (s *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	there := false
	err := s.do(ctx, func(tx *Tx) { there = tx.SetEvict(t.Number) })
	if err == nil && !there {
		return serializer.ErrNoTicket
	}
	return err
}

func (s *Store) Pause(ctx context.Context, name string, until time.Time) error {
	return s.do(ctx, func(tx *Tx) { tx.SetPause(name, until) })
}

func (s *Store) Resume(ctx context.Context, q string) error { return s.Pause(ctx, q, time.Time{}) }

func (s *Store) Close() error {
	err := s.Sync(s.ctx) // marks the last ones as gone
	s.mu.Lock()          // nothing is being reported
	defer s.mu.Unlock()
	s.stop()
	return err
}
