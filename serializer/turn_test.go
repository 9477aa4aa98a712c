package serializer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
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

// A mistake that would silently cost somebody his turn panics: at a second End, the message for
// another caller got lost.
func TestMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		e := serializer.New(store, serializer.Options{})
		defer e.Close()
		turn := enter(t, e, arrival())
		_, wait, _ := e.Arrive(arrival())
		turn.Leave()
		turn, _ = wait.End(t.Context())
		defer turn.Leave()
		joined := e.Join(arrival(), func(turn serializer.Turn, err error) {
			if err == nil {
				turn.Leave()
			}
		})
		for mistake, do := range map[string]func(){
			"a second End":            func() { _, _ = wait.End(t.Context()) },
			"End after Join":          func() { _, _ = joined.End(t.Context()) },
			"Join without a function": func() { e.Join(arrival(), nil) },
			"a second engine":         func() { serializer.New(store, serializer.Options{}) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", mistake)
					}
				}()
				do()
			}()
		}
	})
}
