package serializer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// script is a store that does what a test says, and numbers tickets otherwise. The test
// reports what happens in other processes.
type script struct {
	serializer.Events
	append func(context.Context, []*serializer.Ticket) error // nil: join
	closed chan struct{}

	mu      sync.Mutex
	last    uint64
	removed []uint64
	inside  map[uint64]bool // of tickets of other processes, in a pause
	told    []uint64        // SetInside of tickets in a pause
}

func newScript() *script {
	return &script{closed: make(chan struct{}), inside: make(map[uint64]bool)}
}

// join numbers tickets and reports them.
func (s *script) join(tickets ...*serializer.Ticket) {
	for _, t := range tickets {
		s.mu.Lock()
		s.last++
		t.Number, t.Arrived = s.last, time.Now()
		s.mu.Unlock()
		s.Joined(t)
	}
}

// appear reports a ticket of another process.
func (s *script) appear(queue string, number uint64, rule serializer.Rule) *serializer.Ticket {
	t := &serializer.Ticket{Queue: queue, Number: number, Arrived: time.Now()}
	t.Rule = rule
	s.mu.Lock()
	s.last = max(s.last, number)
	s.mu.Unlock()
	s.Appeared(t)
	return t
}

func (s *script) Path() string                                         { return "script" }
func (s *script) Follow(events serializer.Events)                      { s.Events = events }
func (s *script) Sync(ctx context.Context) error                       { return ctx.Err() }
func (s *script) Pause(_ context.Context, q string, u time.Time) error { s.Paused(q, u); return nil }
func (s *script) Resume(_ context.Context, q string) error             { s.Paused(q, time.Time{}); return nil }
func (s *script) Close() error                                         { close(s.closed); return errClosing }

// Evict shadows that of the events.
func (s *script) Evict(context.Context, *serializer.Ticket) error { return nil }

func (s *script) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	if s.append != nil {
		return s.append(ctx, tickets)
	}
	s.join(tickets...)
	return nil
}

func (s *script) Remove(t *serializer.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = append(s.removed, t.Number)
}

func (s *script) SetInside(t *serializer.Ticket, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if paused {
		s.told = append(s.told, t.Number)
	}
}

func (s *script) Inside(t *serializer.Ticket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inside[t.Number]
}

// wasRemoved reports whether a ticket was removed, once.
func (s *script) wasRemoved(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.removed), func(n uint64) bool { return n != number })) == 1
}

var (
	errClosing = errors.New("closing has failed")
	errHungUp  = errors.New("hung up")
)

// batched hides that memory is immediate, so that an engine appends tickets in batches.
type batched struct{ serializer.Store }

// engines runs a test with both kinds of stores.
func engines(t *testing.T, test func(*testing.T, *serializer.Engine)) {
	t.Helper()
	for name, store := range map[string]serializer.Store{
		"immediate": memory.New(memory.Options{}),
		"batched":   batched{memory.New(memory.Options{})},
	} {
		t.Run(name, func(t *testing.T) {
			e := serializer.New(store, serializer.Options{})
			test(t, e)
			must(t, e.Close())
		})
	}
}

var must = testlease.Must

func newMemory() *serializer.Engine {
	return serializer.New(memory.New(memory.Options{}), serializer.Options{})
}

func arrival() serializer.Arrival {
	return serializer.Arrival{Queue: "a_", Client: "192.168.0.1:36794", Timeout: wait.Patience}
}

func arrivalFor(timeout time.Duration) serializer.Arrival {
	a := arrival()
	a.Timeout = timeout
	return a
}

func ruled(rule serializer.Rule) serializer.Arrival {
	a := arrival()
	a.Rule = rule
	return a
}

func enter(t testing.TB, e *serializer.Engine, a serializer.Arrival) serializer.Turn {
	t.Helper()
	turn, err := e.Enter(t.Context(), a)
	must(t, err)
	return turn
}

// waiter is the wait of an arrival.
type waiter struct {
	serializer.Wait
	result chan result
}

type result struct {
	turn serializer.Turn
	err  error
}

// start begins a wait.
func start(e *serializer.Engine, a serializer.Arrival) *waiter {
	w := &waiter{result: make(chan result, 8)}
	w.Wait = e.Join(a, func(turn serializer.Turn, err error) { w.result <- result{turn, err} })
	return w
}

// join begins a wait, and returns once it has its ticket.
func join(t testing.TB, e *serializer.Engine, a serializer.Arrival) *waiter {
	t.Helper()
	inside, waiting := e.Count(a.Queue)
	w := start(e, a)
	wait.Until(t, "the ticket has joined", func() bool {
		i, w := e.Count(a.Queue)
		return i+w > inside+waiting
	})
	return w
}

func (w *waiter) get(t testing.TB) result {
	t.Helper()
	select {
	case r := <-w.result:
		return r
	case <-time.After(wait.Patience):
		t.Fatal("the wait has not ended")
		return result{}
	}
}

// enters waits for the turn.
func (w *waiter) enters(t testing.TB) serializer.Turn {
	t.Helper()
	r := w.get(t)
	must(t, r.err)
	return r.turn
}

// refused waits for the refusal.
func (w *waiter) refused(t testing.TB, reason serializer.Reason, cause error) *serializer.Refused {
	t.Helper()
	return wantRefusal(t, w.get(t).err, reason, cause)
}

// waits makes sure that the wait has not ended, after the engine has done other things.
func (w *waiter) waits(t testing.TB, e *serializer.Engine) {
	t.Helper()
	a := arrival()
	a.Queue = "another_"
	for range 2 {
		enter(t, e, a).Leave()
	}
	if len(w.result) > 0 {
		t.Fatalf("the wait has ended with error %v", (<-w.result).err)
	}
}

func wantRefusal(t testing.TB, err error, reason serializer.Reason, cause error) *serializer.Refused {
	t.Helper()
	refused, ok := errors.AsType[*serializer.Refused](err)
	if !ok {
		t.Fatalf("got %v, want a refusal for %s", err, reason)
	}
	if refused.Reason != reason || !errors.Is(err, cause) {
		t.Errorf("refused for %s: %v; want %s: %v", refused.Reason, err, reason, cause)
	}
	return refused
}

// revoked makes an arrival note its revocations.
func revoked(a serializer.Arrival) (serializer.Arrival, chan error) {
	causes := make(chan error, 8)
	a.Revoke = func(cause error) { causes <- cause }
	return a, causes
}

func wantRevoked(t testing.TB, causes chan error, cause error) {
	t.Helper()
	select {
	case got := <-causes:
		if !errors.Is(got, cause) {
			t.Errorf("revoked with %v, want %v", got, cause)
		}
	case <-time.After(wait.Patience):
		t.Fatal("Revoke was not called")
	}
}
