package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// crowd is what a case of engines works with: engines that share their queues, and the
// callers that the case has sent to them.
type crowd struct {
	testing.TB
	Options
	engines []*serializer.Engine
	callers []*caller
}

// caller is one arrival.
type caller struct {
	crowd   *crowd
	engine  *serializer.Engine
	arrival serializer.Arrival
	hangUp  context.CancelFunc
	revoked chan error

	done chan struct{} // closed when the engine has answered with what follows
	turn serializer.Turn
	err  error
	left bool

	// In the model of a history, the caller is its ticket.
	position int
	inside   bool
	answer   string // what the caller should have got, as got describes it
}

// onEngines makes a test of stores from one of engines on them.
func onEngines(test func(*crowd)) func(testing.TB, Options, []serializer.Store) {
	return func(t testing.TB, o Options, stores []serializer.Store) {
		c := &crowd{TB: t, Options: o}
		for _, store := range stores {
			c.engines = append(c.engines, serializer.New(store, serializer.Options{}))
		}
		t.Cleanup(c.end)
		test(c)
	}
}

// on returns an engine. The numbers wrap around, so that cases may count callers.
func (c *crowd) on(i int) *serializer.Engine { return c.engines[i%len(c.engines)] }

// arrival returns an arrival in a queue.
func (c *crowd) arrival(text string) serializer.Arrival {
	return serializer.Arrival{Queue: serializer.QueueName(text), Timeout: 2 * c.Patience}
}

// start sends a caller to the i-th engine.
func (c *crowd) start(i int, a serializer.Arrival) *caller {
	ctx, cancel := context.WithCancel(context.Background())
	v := &caller{crowd: c, engine: c.on(i), hangUp: cancel, revoked: make(chan error, 16), done: make(chan struct{})}
	a.Revoke = func(cause error) { v.revoked <- cause }
	c.callers = append(c.callers, v)
	a.Client = clientOf(len(c.callers))
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
	v.crowd.Helper()
	for _, q := range v.crowd.list(v.engine) {
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
func (c *crowd) list(e *serializer.Engine) []serializer.QueueState {
	c.Helper()
	queues, err := e.Queues(context.Background())
	if err != nil {
		c.Fatalf("listing queues: %v", err)
	}
	return queues
}

// end ends all waits and turns, finds tickets that are left, and closes the engines.
func (c *crowd) end() {
	for _, v := range c.callers {
		v.hangUp()
	}
	for _, v := range c.callers {
		select {
		case <-v.done:
			if v.turn != nil && !v.left {
				v.leave()
			}
		case <-time.After(c.Patience):
			c.Errorf("%v did not return though its context is done", v)
			return // closing could wait for ever, too
		}
	}
	for _, e := range c.engines {
		c.until(c, "no ticket is left", func() bool {
			queues, err := e.Queues(context.Background())
			return err != nil || len(queues) == 0 // a closed engine does not list
		})
		if err := e.Close(); err != nil {
			c.Errorf("closing the engine: %v", err)
		}
	}
}
