package test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// wantPaused tries to enter in vain.
func wantPaused(t *testing.T, e *serializer.Engine, queue string) {
	t.Helper()
	if _, err := e.Enter(t.Context(), testlease.Arrival(queue, time.Second)); !errors.Is(err, serializer.ErrTimeout) {
		t.Fatalf("error %v; expected a timeout, for the queue is paused", err)
	}
}

// Machines need not agree about the time of day: a pause lasts as long as its key, or as
// it says, if no lease ends it in time, as after an election. Bug: each machine compared
// the announced end with its own clock, so one whose clock was ahead deleted the pause for
// all.
func TestPauseByAnotherClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ off, length time.Duration }{
		"behind": {-24 * time.Hour, time.Hour},
		"ahead":  {24 * time.Hour, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testetcd.Start(t, testetcd.Own)
			e := open(t, etcd.Options{}, m.URL)
			testlease.Enter(t, e, arrival("a")).Turn.Leave() // so that it watches pauses
			value := fmt.Sprintf(`{"until":%q,"for_ms":%d}`, time.Now().Add(c.off).Format(time.RFC3339Nano), c.length.Milliseconds())
			testlease.Must(t, testlease.Second(m.Client(t).Put(t.Context(), etcd.DefaultNamespace+"!pause/a", value)))
			paused := func() bool { return queueOf(t, e, "a").PausedUntil != nil }
			wait.Until(t, "the pause is known", paused)
			if c.length > time.Minute {
				wantPaused(t, e, "a")
			} else {
				testlease.Enter(t, e, arrival("a")).Turn.Leave()
			}
			if paused() != (c.length > time.Minute) {
				t.Errorf("paused: %t", paused())
			}
		})
	}
}

// A pause outlives the engine that made it. A process that starts later obeys it, whatever
// was written to etcd since. Bug: the second read of the pauses seemed to be newer than the
// pause that it showed.
func TestPauseBeforeStart(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	first := open(t, etcd.Options{}, m.URL)
	testlease.Must(t, first.Pause(t.Context(), "a", time.Time{}))
	testlease.Enter(t, first, arrival("b")).Turn.Leave()
	testlease.Must(t, first.Close())
	late := open(t, etcd.Options{}, m.URL)
	for range 3 {
		testlease.Enter(t, late, arrival("b")).Turn.Leave() // a watch of the pauses has begun by the end
		wantPaused(t, late, "a")
	}
	testlease.Must(t, late.Resume(t.Context(), "a"))
	testlease.Enter(t, late, arrival("a")).Turn.Leave()
}

// etcd ends a pause whose process has gone, and the leases of pauses that were replaced or
// ended are given back.
func TestPauseLease(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c := m.Client(t)
	paused := func() bool {
		found, err := c.Get(t.Context(), etcd.DefaultNamespace+"!pause/a")
		testlease.Must(t, err)
		return found.Count > 0
	}
	e := open(t, etcd.Options{}, m.URL)
	for _, length := range []time.Duration{time.Hour, time.Minute} {
		testlease.Must(t, e.Pause(t.Context(), "a", time.Now().Add(length)))
	}
	if n := len(testetcd.Leases(t, c)); n != 2 {
		t.Errorf("%d leases; expected the process's and the pause's", n)
	}
	if err := e.Resume(t.Context(), "a"); err != nil || paused() {
		t.Fatalf("paused: %t, error %v", paused(), err)
	}
	if n := len(testetcd.Leases(t, c)); n != 1 {
		t.Errorf("%d leases after the pause; expected the process's", n)
	}
	until := time.Now().Add(3 * time.Second)
	testlease.Must(t, e.Pause(t.Context(), "a", until))
	testlease.Must(t, e.Close())
	wait.Until(t, "the pause has ended", func() bool { return !paused() })
	if now := time.Now(); now.Before(until) {
		t.Errorf("it ended %s early", until.Sub(now))
	}
}
