package test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// BenchmarkSuperseding measures the time from an arrival to the refusal of the waiter
// that it supersedes, beside a single put: the arrival itself is one.
func BenchmarkSuperseding(b *testing.B) {
	m := testetcd.Start(b)
	engines := []*engine{open(b, etcd.Options{}, m.URL), openAlone(b, etcd.Options{}, m.URL)}
	for _, c := range []struct {
		name    string
		engines int
	}{{"one process", 1}, {"two processes", 2}} {
		b.Run(c.name, func(b *testing.B) {
			latest := serializer.Arrival{Queue: "a", MaxWaiting: 1, DropOldest: true}
			enter := func(e *engine) <-chan error {
				done := make(chan error, 1)
				go func() {
					turn, err := e.Enter(b.Context(), latest)
					if err == nil {
						turn.Leave()
					}
					done <- err
				}()
				return done
			}
			holder, err := engines[0].Enter(b.Context(), latest)
			if err != nil {
				b.Fatal(err)
			}
			waiting := enter(engines[0])
			var took []time.Duration
			for i := 1; b.Loop(); i++ {
				begun := time.Now()
				next := enter(engines[i%c.engines])
				select {
				case err = <-waiting:
					waiting = next
				case err = <-next: // it came first
				}
				if !errors.Is(err, serializer.ErrSuperseded) {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
			holder.Leave()
			if err := <-waiting; err != nil {
				b.Fatal(err)
			}
		})
	}
}
