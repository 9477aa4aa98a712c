package serializer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// An arrival that does not wait enters where it can enter at once, and nowhere else. A
// refusal leaves no ticket.
func TestNoWait(t *testing.T) {
	try := serializer.Arrival{Queue: "a_", NoWait: true}
	reader := serializer.Arrival{Queue: "a_", NoWait: true, Rule: serializer.Rule{Shared: true}}
	engines(t, func(t *testing.T, e *serializer.Engine) {
		refused := func(a serializer.Arrival) {
			t.Helper()
			_, err := e.Enter(t.Context(), a)
			wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout)
			start(e, a).refused(t, serializer.ReasonTimeout, serializer.ErrNotFree)
		}
		for range 1000 {
			enter(t, e, try).Leave()
		}
		first, second := enter(t, e, reader), enter(t, e, reader)
		refused(try)
		waiting := join(t, e, arrival())
		refused(reader)
		first.Leave()
		second.Leave()
		waiting.enters(t).Leave()
		must(t, e.Pause(t.Context(), "a_", time.Time{}))
		refused(try)
		if inside, waiting := e.Count("a_"); inside+waiting > 0 {
			t.Errorf("%d inside, %d waiting", inside, waiting)
		}
	})
}

// While a store numbers no tickets, those who do not wait are refused, unless the store does
// so for holders only.
func TestNoWaitWhileNoneAreNumbered(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	outer := enter(t, e, serializer.Arrival{Queue: "outer_"})
	s.append = func(_ context.Context, tickets []*serializer.Ticket) error {
		if tickets[0].Holder() == nil {
			return serializer.ErrNotNow
		}
		s.join(tickets...)
		return nil
	}
	_, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a_", NoWait: true})
	wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout)
	enter(t, e, serializer.Arrival{Queue: "a_", NoWait: true, Holds: []serializer.Turn{outer}}).Leave()
	outer.Leave()
}

// A wait that is over before it begins takes no ticket.
//
// Bug: a negative timeout waited for ever, and a context that was done got a turn in memory.
func TestOverBeforeArrival(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errHungUp)
	for _, c := range []struct {
		name   string
		ctx    context.Context
		a      serializer.Arrival
		reason serializer.Reason
		cause  error
	}{
		{"timeout that has passed", t.Context(), arrivalFor(-1), serializer.ReasonTimeout, serializer.ErrTimeout},
		{"context that is done", gone, arrival(), serializer.ReasonGone, errHungUp},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			e := serializer.New(s, serializer.Options{})
			defer e.Close()
			_, err := e.Enter(c.ctx, c.a)
			wantRefusal(t, err, c.reason, c.cause)
			if c.a.Timeout < 0 {
				start(e, c.a).refused(t, c.reason, c.cause)
			}
			if s.last > 0 {
				t.Errorf("it took ticket %d", s.last)
			}
		})
	}
}

// A name that lock files cannot have is refused for each store, and is no failure of one.
func TestBadQueueName(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		for _, name := range []string{"job*", "a/b", ".orderly-x", "p00001", "ü", string(make([]byte, 151))} {
			_, err := e.Enter(t.Context(), serializer.Arrival{Queue: name})
			if _, refused := errors.AsType[*serializer.Refused](err); refused || !errors.Is(err, serializer.ErrQueueName) {
				t.Errorf("queue %q: %v", name, err)
			}
			enter(t, e, serializer.Arrival{Queue: serializer.QueueName(name)}).Leave()
		}
		for _, name := range []string{"a/b", "a/*", "ü*", "p00001"} {
			if err := e.Pause(t.Context(), name, time.Time{}); !errors.Is(err, serializer.ErrQueueName) {
				t.Errorf("pausing %q: %v", name, err)
			}
		}
		must(t, e.Pause(t.Context(), "p00001*", time.Time{}))
	})
}

// A wait ends with its timeout, or when its context is done, neither earlier nor later.
func TestTimeoutsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemory()
		turn := enter(t, e, arrival())
		var done sync.WaitGroup
		for range 300 {
			begins, patience, timeout := rand.N(5*time.Second), rand.N(4*time.Second), 1+rand.N(3*time.Second)
			done.Go(func() {
				time.Sleep(begins)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begun := time.Now()
				_, err := e.Enter(ctx, arrivalFor(timeout))
				if waited := time.Since(begun); waited != min(timeout, patience) {
					t.Errorf("with a timeout of %s and a patience of %s: refused after %s, %v", timeout, patience, waited, err)
				}
				if timeout < patience {
					wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout)
				} else if patience < timeout {
					wantRefusal(t, err, serializer.ReasonGone, context.DeadlineExceeded)
				}
			})
			done.Go(func() {
				time.Sleep(begins)
				begun := time.Now()
				wantRefusal(t, (<-start(e, arrivalFor(timeout)).result).err, serializer.ReasonTimeout, serializer.ErrTimeout)
				if waited := time.Since(begun); waited != timeout {
					t.Errorf("joined with a timeout of %s: refused after %s", timeout, waited)
				}
			})
		}
		done.Wait()
		turn.Leave()
	})
}

// A timeout that no clock reaches means no timeout.
func TestGreatestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemory()
		turn := enter(t, e, arrival())
		w := start(e, arrivalFor(math.MaxInt64))
		time.Sleep(100 * 365 * 24 * time.Hour)
		if n := len(w.result); n > 0 {
			t.Errorf("it was over within a century: %v", (<-w.result).err)
		}
		turn.Leave()
		(<-w.result).turn.Leave()
	})
}

// Each cause has its reason, and no reason is missing from the list, by which the metrics
// count.
func TestReasons(t *testing.T) {
	reasons := map[error]serializer.Reason{
		serializer.ErrTimeout:    serializer.ReasonTimeout,
		serializer.ErrFull:       serializer.ReasonFull,
		serializer.ErrSuperseded: serializer.ReasonSuperseded,
		serializer.ErrEvicted:    serializer.ReasonEvicted,
		serializer.ErrLost:       serializer.ReasonLost,
		serializer.ErrStorage:    serializer.ReasonStorage,
		serializer.ErrClosed:     serializer.ReasonClosed,
		context.Canceled:         serializer.ReasonGone,
		&serializer.StorageError{Op: "renewing", Path: "etcd:", Err: serializer.ErrLost}: serializer.ReasonStorage,
	}
	for err, want := range reasons {
		if got := serializer.ReasonOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is refused for %q; expected %q", err, got, want)
		}
	}
	all := slices.Compact(slices.Sorted(maps.Values(reasons)))
	if listed := slices.Sorted(slices.Values(serializer.Reasons())); !slices.Equal(listed, all) {
		t.Errorf("listed are %q; expected %q", listed, all)
	}
}
