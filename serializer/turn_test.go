package serializer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The context of a turn ends with it, and its cause says why. It does not matter when it is
// asked for.
func TestTurnContext(t *testing.T) {
	ends := map[string]struct {
		cause error
		end   func(*serializer.Engine, serializer.Turn)
	}{
		"left": {serializer.ErrLeft, func(_ *serializer.Engine, turn serializer.Turn) { turn.Leave() }},
		"evicted": {serializer.ErrEvicted, func(e *serializer.Engine, turn serializer.Turn) {
			_ = e.Evict(context.Background(), "a_", turn.Token())
		}},
		"closed": {serializer.ErrClosed, func(e *serializer.Engine, _ serializer.Turn) { go e.Close() }},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, e *serializer.Engine) {
				a, revoked := revoked(arrival())
				turn := enter(t, e, a)
				ctx := turn.Context()
				if ctx.Err() != nil {
					t.Fatal(context.Cause(ctx))
				}
				c.end(e, turn)
				<-ctx.Done()
				if c.cause != serializer.ErrLeft {
					wantRevoked(t, revoked, c.cause)
				}
				turn.Leave()
				turn.Leave()
				for _, ctx := range []context.Context{ctx, turn.Context()} {
					if !errors.Is(context.Cause(ctx), c.cause) {
						t.Errorf("ended with %v; expected %v", context.Cause(ctx), c.cause)
					}
				}
			})
		})
	}
	e := newMemory()
	defer e.Close()
	turn := enter(t, e, arrival())
	turn.Leave()
	if cause := context.Cause(turn.Context()); cause != serializer.ErrLeft {
		t.Errorf("first asked for afterwards, it ended with %v", cause)
	}
}

type key struct{}

// Do runs a function inside, in a context of the caller and of the turn.
func TestDo(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		failed := errors.New("failed")
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		var kept context.Context
		err := e.Do(ctx, arrival(), func(ctx context.Context) error {
			kept = ctx
			if ctx.Value(key{}) != "value" || ctx.Err() != nil {
				t.Errorf("the context has value %v and error %v", ctx.Value(key{}), ctx.Err())
			}
			if token := serializer.TurnOf(ctx).Token(); token != tokenOf(t, e, 0) || serializer.TurnOf(t.Context()) != nil {
				t.Errorf("its turn has the token %d", token)
			}
			if inside, _ := e.Count("a_"); inside != 1 {
				t.Errorf("%d inside", inside)
			}
			return failed
		})
		if err != failed || context.Cause(kept) != serializer.ErrLeft {
			t.Errorf("returned %v, and its context ended with %v", err, context.Cause(kept))
		}
		_ = e.Do(ctx, arrival(), func(ctx context.Context) error {
			_ = e.Evict(ctx, "a_", tokenOf(t, e, 0))
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), serializer.ErrEvicted) {
				t.Errorf("evicted with %v", context.Cause(ctx))
			}
			return nil
		})
		_ = e.Do(ctx, arrival(), func(ctx context.Context) error {
			cancel(errHungUp)
			<-ctx.Done()
			if context.Cause(ctx) != errHungUp {
				t.Errorf("cancelled with %v", context.Cause(ctx))
			}
			return nil
		})
		never := func(context.Context) error { t.Error("it ran"); return nil }
		wantRefusal(t, e.Do(ctx, arrival(), never), serializer.ReasonGone, errHungUp)
		func() {
			defer func() { _ = recover() }()
			_ = e.Do(t.Context(), arrival(), func(context.Context) error { panic("failed") })
		}()
		enter(t, e, arrival()).Leave()
	})
}

// Bug: printing a turn showed the engine and its locks.
func TestPrintedTurn(t *testing.T) {
	e := newMemory()
	defer e.Close()
	turn := enter(t, e, arrival())
	defer turn.Leave()
	data, err := json.Marshal(turn)
	if text := fmt.Sprintf("%v", turn); err != nil || string(data) != strconv.Quote(text) || text != fmt.Sprintf("ticket %d of queue %q", turn.Token(), "a_") {
		t.Errorf("%s, %s, %v", text, data, err)
	}
}

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
				if c.do != nil && c.lasts == 0 && turn.Reenter() { // although nothing has noticed the end yet
					t.Error("it could be entered again")
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

// Another caller of a turn stands in lists, and is the one that a revocation calls, also an earlier one.
// Bug: the JSON of a list did not have the label.
func TestSetCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, evicted := range []bool{false, true} {
			e := newMemory()
			a, first := revoked(arrivalFor(0))
			turn := enter(t, e, a)
			if evicted {
				_ = e.Evict(t.Context(), "a_", turn.Token())
				wantRevoked(t, first, serializer.ErrEvicted)
			}
			second := make(chan error, 2)
			turn.SetCaller(serializer.Label("second"), func(cause error) { second <- cause })
			if queues, _ := e.Queues(t.Context()); *queues[0].Tickets[0].Request != (serializer.Request{Label: "second"}) {
				t.Errorf("the list has %v", queues[0].Tickets[0].Request)
			}
			_ = e.Evict(t.Context(), "a_", turn.Token())
			wantRevoked(t, second, serializer.ErrEvicted)
			if synctest.Wait(); len(first)+len(second) > 0 {
				t.Error("a caller was notified twice, or the first one, too")
			}
			turn.Leave()
			_ = e.Close()
		}
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
