package serializer

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// BenchmarkSuperseding measures the time from an arrival to the refusal of the waiter
// that it supersedes. Two file engines behave like two processes.
func BenchmarkSuperseding(b *testing.B) {
	for _, c := range []struct {
		name    string
		engines func() []Engine
	}{
		{"memory", func() []Engine { return []Engine{NewMemory(MemoryOptions{})} }},
		{"file", func() []Engine { return []Engine{openAt(b, b.TempDir(), 0)} }},
		{"two processes", func() []Engine {
			dir := b.TempDir()
			return []Engine{openAt(b, dir, 0), openAt(b, dir, 0)}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			engines := c.engines()
			latest := Arrival{Queue: "a_", MaxWaiting: 1, DropOldest: true}
			holder := get(b, started(engines[0], latest))
			waiting := started(engines[0], latest)
			var took []time.Duration
			for i := 1; b.Loop(); i++ {
				begun := time.Now()
				next := started(engines[i%len(engines)], latest)
				select {
				case r := <-waiting:
					if !errors.Is(r.err, ErrSuperseded) {
						b.Fatal(r.err)
					}
					waiting = next
				case r := <-next: // it came first
					if !errors.Is(r.err, ErrSuperseded) {
						b.Fatal(r.err)
					}
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
			holder.Leave()
			get(b, waiting).Leave()
		})
	}
}
