package serializer_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

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
				(<-start(e, arrivalFor(timeout)).result).check(t, serializer.ErrTimeout)
				if waited := time.Since(begun); waited != timeout {
					t.Errorf("joined with a timeout of %s: refused after %s", timeout, waited)
				}
			})
		}
		done.Wait()
		turn.Leave()
	})
}

// check makes sure that a wait has ended with an error.
func (r result) check(t *testing.T, cause error) {
	t.Helper()
	wantRefusal(t, r.err, serializer.ReasonOf(cause), cause)
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

// A turn that comes when the time is up is taken or given back, never lost.
func TestTurnAtTheTimeout(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		taken, refused := 0, 0
		for i := range 300 {
			turn := enter(t, e, arrival())
			timeout := time.Millisecond + time.Duration(i)*time.Microsecond
			entered := make(chan result, 1)
			go func() {
				turn, err := e.Enter(t.Context(), arrivalFor(timeout))
				entered <- result{turn, err}
			}()
			joined := start(e, arrivalFor(timeout))
			time.Sleep(timeout)
			turn.Leave()
			for _, w := range []*waiter{{result: entered}, joined} {
				r := w.get(t)
				if r.err == nil {
					taken++
					r.turn.Leave()
					continue
				}
				refused++
				r.check(t, serializer.ErrTimeout)
			}
			holds(t, e, 0, 0)
		}
		t.Logf("%d turns were taken, %d refused", taken, refused)
	})
}

// Channels are reused. A message for one caller must not reach another, whose turn has not
// come.
func TestMessagesReachTheirCallers(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
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
						t.Error("two are inside")
					}
					turn.Leave()
				}
			})
		}
		done.Wait()
		enter(t, e, arrival()).Leave()
	})
}
