package uniqueid

import (
	"testing"
	"time"
)

// Two generators of a process, perhaps for other numbers of shards, share the
// microseconds.
func TestShardedIDUniqueAcrossGenerators(t *testing.T) {
	var keys []key
	gens := []*ShardedIDGenerator{Must(NewShardedIDGenerator(2)), Must(NewShardedIDGenerator(3))}
	for i := range 10_000 {
		id := gens[i%2].New()
		keys = append(keys, key{low: uint64(id.micros)})
	}
	wantDistinct(t, keys)
}

// Bug: on Windows, where the clock stands still for up to 16 ms, each ID waited
// for its next tick: 64 IDs a second.
func TestShardedIDBetweenTicks(t *testing.T) {
	clock := newFakeClock(0)
	gen := Must(NewShardedIDGenerator(1, WithClock(clock)))
	first := gen.New()
	for i := range mostAhead {
		if id := gen.New(); id.Time().Sub(first.Time()) != time.Duration(i+1)*time.Microsecond {
			t.Fatalf("the ID %d after the first is of %v, the first of %v", i+1, id.Time(), first.Time())
		}
	}
	next := make(chan ShardedID)
	go func() { next <- gen.New() }()
	clock.pass(time.Microsecond)
	if id := <-next; id.Time().Sub(first.Time()) != (mostAhead+1)*time.Microsecond {
		t.Errorf("after the tick came %v, the first is of %v", id.Time(), first.Time())
	}
}

func TestShardedIDClock(t *testing.T) {
	clock := newFakeClock(100 * time.Nanosecond)
	gen := Must(NewShardedIDGenerator(1000, WithClock(clock), seeded()))
	last := gen.New()
	for i := range 50_000 {
		if i == 20_000 {
			clock.set(clock.Wall().Add(-time.Hour))
		}
		if i == 40_000 {
			clock.set(clock.Wall().Add(2 * time.Hour))
			clock.pass(time.Millisecond)
		}
		id := gen.New()
		if !id.Time().After(last.Time()) || id.Shard() != int(id.micros%1e6%1000) {
			t.Fatalf("after %v came %v", last, id)
		}
		if i < 20_000 && id.Time().Sub(last.Time()) > time.Microsecond {
			t.Fatalf("after %v it is %v", last.Time(), id.Time())
		}
		last = id
	}
	if late := clock.Wall().Sub(last.Time()); late > time.Millisecond {
		t.Errorf("the step forward was not taken up: the time is %v late", late)
	}
}
