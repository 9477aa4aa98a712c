package redis

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

const ttl = 3 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, o Options, addresses ...string) *Store {
	t.Helper()
	o.Addresses = addresses
	if o.TTL == 0 {
		o.TTL = ttl
	}
	if os.Getenv("REDIS_TEST_LOG") != "" {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	st, err := Open(o)
	must(t, err)
	return st
}

// open makes an engine, as a process does.
func open(t testing.TB, o Options, addresses ...string) *serializer.Engine {
	t.Helper()
	e := serializer.New(openStore(t, o, addresses...), serializer.Options{})
	t.Cleanup(func() { e.Close() })
	return e
}

// opened makes engines that let arrivals in: the namespace is not new any more.
func opened(t testing.TB, n int, addresses ...string) (engines []*serializer.Engine) {
	t.Helper()
	for range n {
		engines = append(engines, open(t, Options{}, addresses...))
	}
	for _, e := range engines {
		enterSoon(t, e)
	}
	return engines
}

// caller is one that waits or is inside.
type caller struct {
	done    chan struct{} // closed when the wait has ended
	turn    serializer.Turn
	err     error
	entered time.Time
	revoked chan error
}

// join starts an arrival, and returns once it has a ticket.
func join(t testing.TB, e *serializer.Engine) *caller {
	t.Helper()
	count := func() int {
		inside, waiting := e.Count("a_")
		return inside + waiting
	}
	before, c := count(), arrive(e, time.Minute)
	wait.Until(t, "the arrival has a ticket", func() bool { return count() > before || c.over() })
	return c
}

func arrive(e *serializer.Engine, timeout time.Duration) *caller {
	c := &caller{done: make(chan struct{}), revoked: make(chan error, 1)}
	go func() {
		defer close(c.done)
		c.turn, c.err = e.Enter(context.Background(), serializer.Arrival{Queue: "a_", Timeout: timeout, Revoke: func(err error) { c.revoked <- err }})
		c.entered = time.Now()
	}()
	return c
}

func (c *caller) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// enter waits for the turn.
func (c *caller) enter(t testing.TB) serializer.Turn {
	t.Helper()
	wait.Until(t, "the wait has ended", c.over)
	must(t, c.err)
	return c.turn
}

func enter(t testing.TB, e *serializer.Engine) *caller {
	t.Helper()
	c := join(t, e)
	c.enter(t)
	return c
}

// enterSoon enters as soon as that is possible, and leaves. It returns the token.
func enterSoon(t testing.TB, e *serializer.Engine) (token uint64) {
	t.Helper()
	wait.Eventually(t, "an arrival enters", func() error {
		c := arrive(e, 10*time.Second)
		<-c.done
		if c.err == nil {
			token = c.turn.Token()
			c.turn.Leave()
		}
		return c.err
	})
	return token
}

// wantRevoked waits until the turn is lost, and returns why.
func (c *caller) wantRevoked(t testing.TB) (err error) {
	t.Helper()
	select {
	case err = <-c.revoked:
		if !errors.Is(err, serializer.ErrLost) {
			t.Errorf("revoked with %v", err)
		}
	case <-time.After(wait.Patience):
		t.Fatal("the holder is not revoked")
	}
	return err
}

// wantRefused waits until arrivals are refused with a text.
func wantRefused(t testing.TB, e *serializer.Engine, text string) {
	t.Helper()
	wait.Until(t, "arrivals are refused: "+text, func() bool {
		c := arrive(e, 200*time.Millisecond)
		if <-c.done; c.err == nil {
			c.turn.Leave()
		}
		return serializer.ReasonOf(c.err) == serializer.ReasonStorage && strings.Contains(c.err.Error(), text)
	})
}
