package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// suspended is a clock that jumps while timers stand still, as a clock that counts
// suspended time does.
type suspended struct {
	mu   sync.Mutex
	time time.Duration
}

func (c *suspended) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *suspended) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time += d
}

const ttl = time.Hour

// begin starts a session on a clock that only the test moves.
func begin(t *testing.T) (*Deadline, *suspended, <-chan error) {
	t.Helper()
	clock, ended := new(suspended), make(chan error, 2)
	s := NewDeadline(clock.now, 0, ttl, func(err error) { ended <- err })
	t.Cleanup(func() { s.Stop() })
	return s, clock, ended
}

// wantEnd waits for the end of a session, and checks that it comes once.
func wantEnd(t *testing.T, s *Deadline, ended <-chan error, cause error) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, cause) {
			t.Errorf("ended with %v; expected %v", err, cause)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the session does not end")
	}
	s.End(errors.New("again"))
	if s.Stands() || len(ended) > 0 {
		t.Error("it stands, or ended twice")
	}
}

// The deadline counts from the sending of the last renewal that was answered.
func TestDeadline(t *testing.T) {
	s, clock, ended := begin(t)
	deadline := ttl - Margin(ttl)
	clock.sleep(deadline - time.Second)
	if !s.Stands() {
		t.Fatal("it ends a second early")
	}
	trouble := errors.New("trouble")
	renew := func(takes time.Duration, err error) {
		if got := s.Renew(func() (time.Duration, error) { clock.sleep(takes); return ttl, err }); got != err {
			t.Errorf("Renew returns %v; expected %v", got, err)
		}
	}
	renew(time.Second-1, nil) // it counts from its sending
	clock.sleep(deadline - time.Second)
	if !s.Stands() {
		t.Fatal("the renewal does not count")
	}
	renew(0, trouble)
	clock.sleep(1)
	if s.Stands() {
		t.Error("it stands at its deadline")
	}
	renew(0, nil) // too late
	renew(0, trouble)
	wantEnd(t, s, ended, trouble)
}

// A session ends at its deadline even if timers stood still: it reads a clock that keeps
// running. It ends at once if it must, or if a renewal comes too late to find the lease.
func TestEnd(t *testing.T) {
	revoked := errors.New("the lease was revoked")
	for _, c := range []struct {
		cause error
		end   func(*Deadline, *suspended)
	}{
		{ErrDeadline, func(_ *Deadline, clock *suspended) { clock.sleep(ttl) }},
		{revoked, func(s *Deadline, _ *suspended) { s.End(revoked) }},
		{ErrEnded, func(s *Deadline, _ *suspended) {
			if err := s.Renew(func() (time.Duration, error) { return 0, ErrEnded }); !errors.Is(err, ErrEnded) {
				t.Error(err)
			}
		}},
	} {
		s, clock, ended := begin(t)
		c.end(s, clock)
		wantEnd(t, s, ended, c.cause)
	}
}

// A renewal that fails is soon repeated. Bug: a lease that took long to begin was lost each time
// before its first renewal, which waited for as long as all others.
func TestKeep(t *testing.T) {
	s, clock, _ := begin(t)
	clock.sleep(ttl / 4)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	renewals := 0
	s.Keep(ctx, ttl, func() error {
		if renewals++; renewals == 3 {
			cancel()
		}
		return errors.New("trouble")
	})
	if renewals != 3 {
		t.Errorf("%d renewals; expected 3", renewals)
	}
}

func TestStop(t *testing.T) {
	s, _, ended := begin(t)
	if !s.Stop() || s.Stop() || s.Stands() || len(ended) > 0 {
		t.Error("a stopped session stands, or says that it ended")
	}
}

// A session ends if its counter does not move for its time to live, however it has moved before.
func TestObserver(t *testing.T) {
	const never, already = int64(time.Hour / time.Microsecond), 0
	for name, test := range map[string]struct {
		reads [][]Heartbeat
		ends  []int64
	}{
		"new":          {[][]Heartbeat{{{1, 5, never}}}, nil},
		"stale":        {[][]Heartbeat{{{1, 5, already}, {2, 6, never}}, {{1, 5, never}, {2, 6, already}}}, []int64{1}},
		"renewed":      {[][]Heartbeat{{{1, 5, already}}, {{1, 6, never}}}, nil},
		"set back":     {[][]Heartbeat{{{1, 5, already}}, {{1, 4, never}}}, nil},
		"gone":         {[][]Heartbeat{{{1, 5, already}}, {}}, nil},
		"gone, and on": {[][]Heartbeat{{{1, 5, already}}, {}, {{1, 5, never}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var o Observer
			for _, read := range test.reads {
				o.See(read)
			}
			if ids, renewals := o.Stale(); !slices.Equal(ids, test.ends) || len(renewals) != len(ids) {
				t.Errorf("%d have ended; expected %d", ids, test.ends)
			}
		})
	}
	if next := new(Observer).See([]Heartbeat{{1, 0, 2e6}, {2, 0, 1e6}, {3, 0, never * 2}}); next != time.Second {
		t.Errorf("the next one may end in %s", next)
	}
}
