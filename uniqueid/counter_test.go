package uniqueid

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// One goroutine at a time counts in order, whichever lanes it comes from.
func TestCounterCountsInOrder(t *testing.T) {
	var l lanes
	var c counter
	for want := range uint64(10_000) {
		got := make(chan uint64)
		go func() { got <- l.take(&c) }()
		if number := <-got; number != want {
			t.Fatalf("took %d, want %d", number, want)
		}
	}
}

// Bug: two cores had to fetch the counter from each other for every number. A
// goroutine that meets another at the counter takes a share of numbers. If the
// share is soon used up, it takes another; otherwise it returns to the counter.
// When the counter is another one, it abandons the rest of its share.
func TestCounterShare(t *testing.T) {
	var l lane
	var c, next counter
	c.made.Store(100)
	want := func(c *counter, numbers ...uint64) {
		t.Helper()
		for _, number := range numbers {
			if got := l.take(c); got != number {
				t.Fatalf("took %d, want %d", got, number)
			}
		}
	}
	want(&c, 100, 101)
	if got := l.takeShare(&c); got != 102 {
		t.Fatalf("took a share from %d on, want 102", got)
	}
	c.made.Store(1000) // others count
	for number := uint64(103); number < 102+shareLen; number++ {
		want(&c, number)
	}
	l.share.Load().taken = time.Since(laneClock) // as if it had taken no time
	want(&c, 1000, 1001)
	if made := c.made.Load(); made != 1000+shareLen {
		t.Errorf("after a share that was soon used up the counter is at %d", made)
	}
	s := l.share.Load()
	s.next.Store(s.end)
	s.taken -= busyShare
	want(&c, 1000+shareLen, 1001+shareLen)
	if l.share.Load() != nil || c.made.Load() != 1002+shareLen {
		t.Errorf("after a share that took its time the counter is at %d", c.made.Load())
	}
	l.takeShare(&c)
	want(&next, 0, 1, 2)
}

// Nothing comes twice, with more goroutines than lanes and counters that are
// given up while others still count on them.
func TestCounterUnique(t *testing.T) {
	const goroutines = 3 * counterLanes
	var l lanes
	counters := make([]counter, 20)
	taken := make([][]key, goroutines)
	var wg sync.WaitGroup
	for i := range taken {
		wg.Go(func() {
			for j := range counters {
				for n := range scaled(300, 20_000) {
					taken[i] = append(taken[i], key{uint64(j), l.take(&counters[j])})
					if n%50 == 0 {
						runtime.Gosched()
					}
				}
			}
		})
	}
	wg.Wait()
	keys := slices.Concat(taken...)
	wantDistinct(t, keys)
	last := uint64(0)
	for _, k := range keys {
		last = max(last, k.low)
	}
	t.Logf("%d numbers of %d counters, the greatest %d", len(keys), len(counters), last)
}
