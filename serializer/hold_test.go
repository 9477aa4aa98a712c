package serializer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// A turn that was left by LeaveAt ends at that moment, or at once when something else ends it.
// Nobody enters before, and the caller hears of nothing any more.
func TestLeaveAt(t *testing.T) {
	const held = time.Minute
	for name, c := range map[string]struct {
		until time.Duration
		do    func(*serializer.Engine, serializer.Turn) // after LeaveAt
		lasts time.Duration
		cause error
	}{
		"in time":       {held, nil, held, serializer.ErrLeft},
		"a past moment": {-held, nil, 0, serializer.ErrLeft},
		"left after all": {held, func(_ *serializer.Engine, turn serializer.Turn) {
			turn.LeaveAt(time.Now().Add(2*held), nil) // does not put it off
			turn.Leave()
		}, 0, serializer.ErrLeft},
		"a later moment": {held, func(_ *serializer.Engine, turn serializer.Turn) {
			turn.LeaveAt(time.Now().Add(2*held), nil)
		}, held, serializer.ErrLeft},
		"evicted": {held, func(e *serializer.Engine, turn serializer.Turn) {
			_ = e.Evict(context.Background(), "a_", turn.Token())
		}, 0, serializer.ErrEvicted},
		"closed": {held, func(e *serializer.Engine, _ serializer.Turn) { _ = e.Close() }, 0, serializer.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newMemory()
				a, revoked := revoked(arrivalFor(0))
				turn := enter(t, e, a)
				next := join(t, e, arrivalFor(0))
				begun := time.Now()
				ended := make(chan error, 2)
				turn.LeaveAt(begun.Add(c.until), func() { ended <- context.Cause(turn.Context()) })
				if c.do != nil {
					c.do(e, turn)
				}
				cause := <-ended
				if r := next.get(t); r.err == nil {
					r.turn.Leave()
				} else if c.cause != serializer.ErrClosed {
					t.Error(r.err)
				}
				if lasted := time.Since(begun); lasted != c.lasts || !errors.Is(cause, c.cause) {
					t.Errorf("lasted %v, and ended with %v; expected %v and %v", lasted, cause, c.lasts, c.cause)
				}
				if synctest.Wait(); turn.Reenter() || len(revoked) > 0 || len(ended) > 0 {
					t.Error("it could be entered again, or its caller was notified, or heard twice of the end")
				}
				_ = e.Close()
			})
		})
	}
}

// A turn that has been revoked cannot be put off. One that the store has lost ends at once.
func TestLeaveAtAfterRevocation(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	turn := enter(t, e, arrival())
	_ = e.Evict(t.Context(), "a_", turn.Token())
	turn.LeaveAt(time.Now().Add(time.Hour), nil)
	if !s.wasRemoved(turn.Token()) {
		t.Error("an evicted holder has left, and keeps its turn")
	}
	turn = enter(t, e, arrival())
	turn.LeaveAt(time.Now().Add(time.Hour), nil)
	s.Lost(serializer.ErrLost)
	enter(t, e, arrival()).Leave()
	wait.Until(t, "the ticket of the lost turn is out of the store", func() bool { return s.wasRemoved(turn.Token()) })
	_ = e.Close()
}

// A caller that has come back keeps its turn for as long as it likes, until it leaves again. A
// list says of the one that has left until when its turn is held.
func TestReenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemory()
		a, revoked := revoked(arrivalFor(0))
		turn := enter(t, e, a)
		next := join(t, e, arrivalFor(0))
		until := time.Now().Add(time.Minute)
		heldUntil := func() time.Time {
			queues, _ := e.Queues(t.Context())
			return queues[0].Tickets[0].HeldUntil
		}
		for range 2 {
			turn.LeaveAt(until, func() { t.Error("the turn that was entered again has ended") })
			if got := heldUntil(); !got.Equal(until) {
				t.Errorf("held until %v; expected %v", got, until)
			}
			first, again := turn.Reenter(), turn.Reenter()
			if !first || !again || !heldUntil().IsZero() {
				t.Error("it cannot be entered again, or is held")
			}
		}
		time.Sleep(2 * time.Minute)
		_ = e.Evict(t.Context(), "a_", turn.Token())
		wantRevoked(t, revoked, serializer.ErrEvicted)
		next.waits(t, e)
		turn.LeaveAt(time.Now().Add(time.Minute), nil)
		next.enters(t).Leave()
		_ = e.Close()
	})
}

// A held turn keeps its slot: the next one with two slots gets the other, and a third one waits.
func TestHeldTurnKeepsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemory()
		a := arrivalFor(0)
		a.Rule.Limit, a.Slots = 2, func() []string { return []string{"one", "two"} }
		first := enter(t, e, a)
		begun, slot := time.Now(), first.Slot()
		first.LeaveAt(begun.Add(time.Minute), nil)
		second := enter(t, e, a)
		third := enter(t, e, a)
		if second.Slot() == slot || third.Slot() != slot || time.Since(begun) != time.Minute {
			t.Errorf("slots %s, %s and %s, the last after %v", slot, second.Slot(), third.Slot(), time.Since(begun))
		}
		second.Leave()
		third.Leave()
		_ = e.Close()
	})
}
