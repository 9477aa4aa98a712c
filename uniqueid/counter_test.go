package uniqueid

import (
	"runtime"
	"slices"
	"sync"
	"testing"
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

// Two cores had to fetch the counter from each other for every number. A goroutine
// that finds another at the counter goes on with numbers of its own, and when the
// counter is another one, leaves the rest of them.
func TestCounterShare(t *testing.T) {
	var l lanes
	var c, next counter
	c.made.Store(100)
	const lane = 7
	cell := &l[lane].share
	s := &share{of: &c, end: 100}
	s.next.Store(98)
	cell.Store(s)
	for _, want := range []uint64{98, 99, 100, 101} {
		if number := l.takeIn(lane, &c); number != want {
			t.Fatalf("took %d, want %d", number, want)
		}
	}
	if cell.Load() != nil {
		t.Error("a share that is used up is kept")
	}
	s.next.Store(98)
	cell.Store(s)
	for want := range uint64(3) {
		if number := l.takeIn(lane, &next); number != want {
			t.Fatalf("took %d of the next counter, want %d", number, want)
		}
	}
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
