package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// caller is one arrival.
type caller struct {
	history *history
	engine  *serializer.Engine
	arrival serializer.Arrival
	hangUp  context.CancelFunc
	revoked chan error

	done chan struct{} // closed when the engine has answered with what follows
	turn serializer.Turn
	err  error
	left bool

	// In the model, the caller is its ticket.
	position int
	inside   bool
	answer   string // what the caller should have got, as got describes it
}

// start sends a caller to an engine, to each in turn.
func (h *history) start(a serializer.Arrival) *caller {
	ctx, cancel := context.WithCancel(context.Background())
	e := h.engines[len(h.callers)%len(h.engines)]
	v := &caller{history: h, engine: e, hangUp: cancel, revoked: make(chan error, 16), done: make(chan struct{})}
	a.Revoke = func(cause error) { v.revoked <- cause }
	h.callers = append(h.callers, v)
	a.Client = clientOf(len(h.callers))
	v.arrival = a
	go func() {
		defer close(v.done)
		v.turn, v.err = v.engine.Enter(ctx, v.arrival)
	}()
	return v
}

func (v *caller) String() string {
	return fmt.Sprintf("caller %s of queue %q by %+v", v.arrival.Client, v.arrival.Queue, v.arrival.Rule)
}

// got describes what the caller has got.
func (v *caller) got() string {
	select {
	case <-v.done:
	default:
		return "waits"
	}
	if refused, ok := errors.AsType[*serializer.Refused](v.err); ok {
		return string(refused.Reason)
	}
	if v.left {
		return "left"
	}
	return enteredAt(v.turn.Position())
}

func enteredAt(position int) string { return fmt.Sprint("entered at ", position) }

// token is the token of the caller's ticket, as its engine lists it; 0 if it does not.
func (v *caller) token() (token uint64) {
	v.history.Helper()
	for _, q := range v.history.list(v.engine) {
		for _, t := range q.Tickets {
			if t.Client == v.arrival.Client {
				token, _ = strconv.ParseUint(t.Token, 10, 64)
			}
		}
	}
	return token
}

// leave ends the caller's turn.
func (v *caller) leave() {
	v.left = true
	v.turn.Leave()
}

// list is what an engine lists.
func (h *history) list(e *serializer.Engine) []serializer.QueueState {
	h.Helper()
	queues, err := e.Queues(context.Background())
	if err != nil {
		h.Fatalf("listing queues: %v", err)
	}
	return queues
}

// end ends all waits and turns, finds tickets that are left, and closes the engines.
func (h *history) end() {
	for _, v := range h.callers {
		v.hangUp()
	}
	for _, v := range h.callers {
		select {
		case <-v.done:
			if v.turn != nil && !v.left {
				v.leave()
			}
		case <-time.After(h.Patience):
			h.Errorf("%v did not return though its context is done", v)
			return // closing could wait for ever, too
		}
	}
	for _, e := range h.engines {
		h.until(h, "no ticket is left", func() bool {
			queues, err := e.Queues(context.Background())
			return err != nil || len(queues) == 0 // a closed engine does not list
		})
		if err := e.Close(); err != nil {
			h.Errorf("closing the engine: %v", err)
		}
	}
}
