package serializer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// These tests keep the engine cheap. They count what does not depend on the machine, and
// compare times only with others of the same run. The command in the folder bench measures
// the figures themselves.

// The bounds are the current values, so that a new allocation is noticed.
func TestAllocationsOfATurn(t *testing.T) {
	if raceDetector {
		return // the race detector allocates, too
	}
	reader := ruled(serializer.Rule{Shared: true})
	reader.Timeout = 0
	for name, c := range map[string]struct {
		most float64
		turn func(*serializer.Engine)
	}{
		"Enter": {1, func(e *serializer.Engine) { enter(t, e, reader).Leave() }},
		"Join": {4, func(e *serializer.Engine) {
			left := make(chan struct{})
			e.Join(reader, func(turn serializer.Turn, _ error) { turn.Leave(); close(left) })
			<-left
		}},
	} {
		e := newMemory()
		stays := enter(t, e, reader) // so that the queue does
		n := testing.AllocsPerRun(2000, func() { c.turn(e) })
		stays.Leave()
		if n > c.most {
			t.Errorf("%s: a turn allocates %.1f times, more than %.0f", name, n, c.most)
		}
	}
}

// turnsOf takes turns until so many have passed, and returns what each took, by a clock. A
// holder that leaves joins the queue again.
func turnsOf(t *testing.T, e *serializer.Engine, waiting int, clock func() time.Duration) time.Duration {
	const counted = 2000
	holder := enter(t, e, arrival())
	over, end := context.WithCancel(t.Context())
	defer end()
	var used time.Duration
	var began, passed atomic.Int64
	var done sync.WaitGroup
	for range waiting {
		done.Go(func() {
			for over.Err() == nil {
				turn, err := e.Enter(over, arrival())
				if err != nil {
					return
				}
				if passed.Add(1) == counted {
					used = clock() - time.Duration(began.Load())
					end()
				}
				turn.Leave()
			}
		})
	}
	wait.Until(t, "all wait", func() bool { _, n := e.Count("a_"); return n == waiting })
	began.Store(int64(clock()))
	holder.Leave()
	done.Wait()
	return used / counted
}
