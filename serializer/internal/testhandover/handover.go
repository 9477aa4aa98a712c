// Package testhandover measures for how long nobody is inside while others wait.
package testhandover

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Enter enters for [Run].
func Enter(ctx context.Context, e *serializer.Engine, a serializer.Arrival) (leave func(), err error) {
	turn, err := e.Enter(ctx, a)
	if err != nil {
		return nil, err
	}
	return turn.Leave, nil
}

// Run has callers take turns until there were b.N, and measures the time between two. take
// returns how to leave. A single caller that takes what nobody else does shows what a bare
// write costs.
func Run(b *testing.B, name string, callers int, hold time.Duration, take func(ctx context.Context, caller int) (leave func(), err error)) {
	b.Run(name, func(b *testing.B) {
		var inside sync.Mutex
		var left time.Time
		var gaps []time.Duration
		var turns atomic.Int64
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for turns.Add(1) <= int64(b.N) {
					leave, err := take(b.Context(), i)
					if err != nil {
						b.Error(err)
						return
					}
					if !inside.TryLock() {
						b.Error("two are inside")
						return
					}
					if !left.IsZero() {
						gaps = append(gaps, time.Since(left))
					}
					time.Sleep(hold)
					left = time.Now()
					inside.Unlock()
					leave()
				}
			})
		}
		group.Wait()
		if len(gaps) > 0 {
			slices.Sort(gaps)
			b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds()), "median-µs")
			b.ReportMetric(float64(gaps[len(gaps)*99/100].Microseconds()), "p99-µs")
		}
	})
}
