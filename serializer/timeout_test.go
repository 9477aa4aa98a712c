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
