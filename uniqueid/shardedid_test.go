package uniqueid

import (
	"testing"
	"time"
)

// IDs for different numbers of shards share the microseconds.
func TestShardedIDUniqueAcrossShards(t *testing.T) {
	var keys []key
	for i := range 10_000 {
		id := Must(NewShardedID(2 + i%2))
		keys = append(keys, key{low: id.moment})
	}
	wantDistinct(t, keys)
}

// Bug: on Windows, where the clock stands still for up to 16 ms, each ID waited
// for its next tick: 64 IDs a second.
func TestShardedIDBetweenTicks(t *testing.T) {
	clock := newFakeClock(0)
	micros := newMicroseconds(newClock(clock))
	micros.ahead = 1000
	first := micros.take()
	for i := range 1000 {
		if next := micros.take(); next-first != int64(i+1) {
			t.Fatalf("the ID %d after the first is %d microseconds later", i+1, next-first)
		}
	}
	next := make(chan int64)
	go func() { next <- micros.take() }()
	clock.pass(time.Microsecond)
	if late := <-next - first; late != 1001 {
		t.Errorf("after the tick came an ID that is %d microseconds later than the first", late)
	}
}

func TestShardedIDClock(t *testing.T) {
	clock := newFakeClock(100 * time.Nanosecond)
	micros := newMicroseconds(newClock(clock))
	last := micros.take()
	for i := range 50_000 {
		if i == 20_000 {
			clock.set(clock.Wall().Add(-time.Hour))
		}
		if i == 40_000 {
			clock.set(clock.Wall().Add(2 * time.Hour))
			clock.pass(time.Millisecond)
		}
		next := micros.take()
		if next <= last || i < 20_000 && next-last > 1 {
			t.Fatalf("after %d came %d", last, next)
		}
		last = next
	}
	if late := clock.Wall().Sub(time.UnixMicro(last)); late > time.Millisecond {
		t.Errorf("the step forward was not taken up: the time is %v late", late)
	}
}
