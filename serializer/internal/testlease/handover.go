package testlease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// HandOver measures for how long nobody is inside while others wait: 8 clients, of one process or
// several. Each holds for a millisecond on average.
func HandOver(b *testing.B, open func() *serializer.Engine) {
	for _, processes := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			var engines []*serializer.Engine
			for range processes {
				engines = append(engines, open())
			}
			b.ResetTimer()
			clients := Come(Queue, 8/processes, engines...)
			wait.Until(b, "all had turns", func() bool { return clients.Len() > b.N })
			clients.End()
			gaps := slices.Sorted(slices.Values(clients.Gaps()))
			b.ReportMetric(float64(gaps[len(gaps)/2])/float64(time.Microsecond), "median-µs")
			b.ReportMetric(float64(gaps[len(gaps)*99/100])/float64(time.Microsecond), "p99-µs")
		})
	}
}
