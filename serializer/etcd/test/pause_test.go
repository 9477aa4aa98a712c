package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A pause outlives the engine that made it, and holds for one that starts later.
func TestPauseBeforeStart(t *testing.T) {
	m := testetcd.Start(t)
	first := open(t, etcd.Options{}, m.URL)
	if err := first.Pause(t.Context(), "a", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	e := open(t, etcd.Options{}, m.URL)
	_, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a", Timeout: time.Second})
	if !errors.Is(err, serializer.ErrTimeout) {
		t.Errorf("error %v; expected a timeout, for the queue is paused", err)
	}
	if err := e.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	turn, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	turn.Leave()
}

// Machines need not agree about the time of day: a pause lasts as long as its key. Bug:
// each machine compared the announced end with its own clock, so one whose clock was
// ahead deleted the pause for all.
func TestPauseFromClockBehind(t *testing.T) {
	m := testetcd.Start(t)
	e := open(t, etcd.Options{}, m.URL)
	enter(t, e, arrival("a")).Leave() // so that it watches pauses
	value := fmt.Sprintf(`{"until":%q,"for_ms":3600000}`, time.Now().Add(-24*time.Hour).Format(time.RFC3339Nano))
	c := m.Client(t)
	write(t, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return c.Put(ctx, etcd.DefaultNamespace+"!pause/a", value)
	})
	wait.Until(t, "the pause is known", func() bool { return queueOf(t, e, "a").PausedUntil != nil })
	a := arrival("a")
	a.Timeout = time.Second
	if _, err := e.Enter(t.Context(), a); !errors.Is(err, serializer.ErrTimeout) {
		t.Errorf("error %v; expected a timeout, for the queue is paused", err)
	}
	if queueOf(t, e, "a").PausedUntil == nil {
		t.Error("the pause is gone")
	}
}

// A process that starts later obeys a pause, whatever was written to etcd since. Bug: the
// second read of the pauses seemed to be newer than the pause that it showed.
func TestPauseBeforeLaterWrites(t *testing.T) {
	m := testetcd.Start(t)
	e := open(t, etcd.Options{}, m.URL)
	if err := e.Pause(t.Context(), "a", time.Time{}); err != nil {
		t.Fatal(err)
	}
	enter(t, e, arrival("b")).Leave()
	late := open(t, etcd.Options{}, m.URL)
	for i := range 3 {
		enter(t, late, arrival("b")).Leave() // a watch of the pauses has begun by the end
		a := arrival("a")
		a.Timeout = time.Second
		if _, err := late.Enter(t.Context(), a); !errors.Is(err, serializer.ErrTimeout) {
			t.Fatalf("try %d: error %v; expected a timeout, for the queue is paused", i, err)
		}
	}
}

// etcd ends a pause whose process has gone, and the leases of pauses that were replaced or
// ended are given back.
func TestPauseLease(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	leases := func() int { return len(testetcd.Leases(t, c)) }
	key := etcd.DefaultNamespace + "!pause/a"
	paused := func() bool {
		found, err := c.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return found.Count > 0
	}
	e := open(t, etcd.Options{}, m.URL)
	for _, length := range []time.Duration{time.Hour, time.Minute} {
		if err := e.Pause(t.Context(), "a", time.Now().Add(length)); err != nil {
			t.Fatal(err)
		}
	}
	if n := leases(); n != 2 {
		t.Errorf("%d leases; expected the process's and the pause's", n)
	}
	if err := e.Resume(t.Context(), "a"); err != nil || paused() {
		t.Fatalf("paused: %t, error %v", paused(), err)
	}
	if n := leases(); n != 1 {
		t.Errorf("%d leases after the pause; expected the process's", n)
	}
	until := time.Now().Add(4 * time.Second)
	if err := e.Pause(t.Context(), "a", until); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the pause has ended", func() bool { return !paused() })
	if now := time.Now(); now.Before(until) {
		t.Errorf("it ended %s early", until.Sub(now))
	}
}

// A pause that no lease ends in time, as after an election, ends by the clocks of those
// who saw it begin.
func TestPauseOutlivedByLease(t *testing.T) {
	m := testetcd.Start(t)
	e := open(t, etcd.Options{}, m.URL)
	enter(t, e, arrival("a")).Leave()
	c := m.Client(t)
	value := fmt.Sprintf(`{"until":%q,"for_ms":1500}`, time.Now().Add(24*time.Hour).Format(time.RFC3339Nano))
	write(t, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return c.Put(ctx, etcd.DefaultNamespace+"!pause/a", value)
	})
	wait.Until(t, "the pause is known", func() bool { return queueOf(t, e, "a").PausedUntil != nil })
	enter(t, e, arrival("a")).Leave()
	if queueOf(t, e, "a").PausedUntil != nil {
		t.Error("it is still paused")
	}
}
