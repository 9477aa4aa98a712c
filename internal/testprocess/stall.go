package testprocess

import "time"

// LongestStall watches for times in which nothing in this process runs, until the result is called.
// That returns the longest of them.
func LongestStall() (end func() time.Duration) {
	const tick = 10 * time.Millisecond
	over, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		for stall := time.Duration(0); ; {
			before := time.Now()
			select {
			case <-over:
				longest <- stall
				return
			case <-time.After(tick):
				stall = max(stall, time.Since(before)-tick)
			}
		}
	}()
	return func() time.Duration {
		close(over)
		return <-longest
	}
}
