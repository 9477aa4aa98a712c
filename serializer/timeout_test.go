package serializer

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// All waiters whose timeouts are equally long share a timer. It is set anew when its
// waiter leaves before its time, and when its time is over; other lengths have timers of
// their own.
func TestTimeoutsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewMemory(MemoryOptions{})
		turn := enter(t, e, arrival("a_"))
		var done sync.WaitGroup
		for range 300 {
			begins, patience := rand.N(5*time.Second), rand.N(4*time.Second)
			timeout := []time.Duration{time.Second, 2 * time.Second, 2*time.Second + 1, 1 + rand.N(3*time.Second)}[rand.N(4)]
			done.Go(func() {
				time.Sleep(begins)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				start := time.Now()
				_, err := e.Enter(ctx, arrivalFor(timeout))
				waited, expected := time.Since(start), min(timeout, patience)
				if waited != expected {
					t.Errorf("with a timeout of %s and a patience of %s: refused after %s, %v", timeout, patience, waited, err)
				}
				if timeout < patience {
					wantRefusal(t, err, ReasonTimeout, ErrTimeout)
				} else if patience < timeout {
					wantRefusal(t, err, ReasonGone, context.DeadlineExceeded)
				}
			})
		}
		done.Wait()
		turn.Leave()
		wantNoTimeouts(t, &e.waits.timeouts)
	})
}

// wantNoTimeouts makes sure that nobody is in a list.
func wantNoTimeouts(t *testing.T, all *timeouts) {
	t.Helper()
	all.mu.Lock()
	defer all.mu.Unlock()
	if n := len(all.lists); n > spareLists {
		t.Errorf("%d lists are left, more than %d", n, spareLists)
	}
	for length, l := range all.lists {
		if l.first != nil || l.last != nil {
			t.Errorf("somebody is left in the list of %s", length)
		}
	}
}

// A list that was left empty has a timer for a waiter that has gone. The next waiter
// must not be refused earlier or later because of that.
func TestTimeoutInAnEmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewMemory(MemoryOptions{})
		turn := enter(t, e, arrival("a_"))
		defer turn.Leave()
		for _, pause := range []time.Duration{0, 900 * time.Millisecond, 500 * time.Millisecond, 10 * time.Second, time.Second} {
			time.Sleep(pause)
			gone, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := e.Enter(gone, arrivalFor(time.Second))
			leave()
			wantRefusal(t, err, ReasonGone, context.DeadlineExceeded)
			time.Sleep(400 * time.Millisecond)
			start := time.Now()
			_, err = e.Enter(t.Context(), arrivalFor(time.Second))
			wantRefusal(t, err, ReasonTimeout, ErrTimeout)
			if waited := time.Since(start); waited != time.Second {
				t.Errorf("after a pause of %s: refused after %s", pause, waited)
			}
		}
	})
}

// A timeout that no clock reaches means no timeout.
func TestGreatestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewMemory(MemoryOptions{})
		turn := enter(t, e, arrival("a_"))
		waiting := started(e, arrivalFor(math.MaxInt64))
		time.Sleep(100 * 365 * 24 * time.Hour)
		if n := len(waiting); n > 0 {
			t.Errorf("it was over within a century: %v", (<-waiting).err)
		}
		turn.Leave()
		get(t, waiting).Leave()
		if err := e.Close(); err != nil { // else the timer of its list would keep the test from ending
			t.Error(err)
		}
	})
}

// An engine in which each wait has another timeout must not keep a list for each. A
// closed engine must keep none: the timers would keep it in memory.
func TestListsOfTimeoutsAreDropped(t *testing.T) {
	e := NewMemory(MemoryOptions{})
	turn := enter(t, e, arrival("a_"))
	gone, leave := context.WithCancel(t.Context())
	var done sync.WaitGroup
	const crowd = 5 * spareLists
	for i := range crowd {
		done.Go(func() { _, _ = e.Enter(gone, arrivalFor(time.Hour+time.Duration(i))) })
	}
	lists := func() int {
		e.waits.timeouts.mu.Lock()
		defer e.waits.timeouts.mu.Unlock()
		return len(e.waits.timeouts.lists)
	}
	wait.Until(t, "each has a list", func() bool { return lists() == crowd })
	leave()
	done.Wait()
	if n := lists(); n > spareLists {
		t.Errorf("%d lists are left, more than %d", n, spareLists)
	}
	waiting := started(e, arrivalFor(time.Minute))
	awaitQueue(t, e, 2)
	_ = e.Close()
	<-waiting
	if n := lists(); n > 0 {
		t.Errorf("%d lists are left in a closed engine", n)
	}
	turn.Leave()
}

// A turn that comes when the time is up is taken or given back, never lost. Waiters
// without a goroutine have the same timeouts.
func TestTurnAtTheTimeout(t *testing.T) {
	file := openAt(t, t.TempDir(), 0)
	for _, e := range []Engine{NewMemory(MemoryOptions{}), file} {
		taken, refused := 0, 0
		for i := range 300 {
			turn := enter(t, e, arrival("a_"))
			timeout := time.Millisecond + time.Duration(i)*time.Microsecond
			waiting, joined := started(e, arrivalFor(timeout)), make(chan result, 1)
			Join(e, arrivalFor(timeout), func(turn Turn, err error) { joined <- result{turn, err} })
			time.Sleep(timeout)
			turn.Leave()
			for range 2 {
				var r result
				select {
				case r = <-waiting:
				case r = <-joined:
				case <-time.After(10 * time.Second):
					t.Fatalf("%T: somebody waits though nobody is inside", e)
				}
				if r.err == nil {
					taken++
					r.turn.Leave()
					continue
				}
				refused++
				wantRefusal(t, r.err, ReasonTimeout, ErrTimeout)
			}
			// The file engine takes back a ticket that it was still making.
			wait.Until(t, "no ticket is left", func() bool { return length(t, e, "a_") == 0 })
		}
		t.Logf("%T: %d turns were taken, %d refused", e, taken, refused)
		switch e := e.(type) {
		case *Memory:
			wantNoTimeouts(t, &e.waits.timeouts)
		case *File:
			wantNoTimeouts(t, &e.waits.timeouts)
		}
	}
}

// Channels are reused. A message for one caller must not reach another, whose turn has
// not come.
func TestMessagesReachTheirCallers(t *testing.T) {
	file := openAt(t, t.TempDir(), 0)
	for _, e := range []Engine{NewMemory(MemoryOptions{}), file} {
		inside := make(chan struct{}, 1)
		var done sync.WaitGroup
		for range 16 {
			done.Go(func() {
				for range 500 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(200*time.Microsecond))
					turn, err := e.Enter(ctx, arrivalFor(1+rand.N(200*time.Microsecond)))
					cancel()
					if err != nil {
						continue
					}
					select {
					case inside <- struct{}{}:
						<-inside
					default:
						t.Errorf("%T: two are inside", e)
					}
					turn.Leave()
				}
			})
		}
		done.Wait()
		enter(t, e, arrival("a_")).Leave()
	}
}
