package uniqueid

import (
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"
)

// All numbers of a millisecond are taken. Lanes move on to the next one, and no two get
// the same number.
func TestLanesAreClaimedOnce(t *testing.T) {
	const millis = 1_700_000_000_000
	gen := NewTXIDGenerator()
	claims := makeFromAllCores(t, 3*(1<<txidLaneBits-2), anyOrder, func() key {
		var lane txidLane
		high := gen.claim(&lane, millis<<txidGrowingBits|5)
		if high>>txidGrowingBits != lane.claimed>>txidLaneBits {
			t.Errorf("lane %x makes an ID of millisecond %d", lane.claimed, high>>txidGrowingBits)
		}
		return key{low: lane.claimed}
	})
	wantDistinct(t, claims)
	if last := claims[len(claims)-1].low; last>>txidLaneBits != millis+2 {
		t.Errorf("the last lane is %x", last)
	}
}

// A lane that begins after the word goes on behind it, and never takes the word's number.
func TestLanesFollowTheWord(t *testing.T) {
	clock := newFakeClock(time.Nanosecond)
	gen := NewTXIDGenerator(WithClock(clock))
	clock.tick = 0
	last := gen.New()
	for range 1000 {
		last = gen.New()
	}
	gen.met.Store(true)
	if id := gen.New(); id.String() <= last.String() {
		t.Errorf("after %v came %v", last, id)
	}
	if number := gen.claimed.Load() & (1<<txidLaneBits - 1); number == 0 {
		t.Error("a lane has the number of the word")
	}
}

func TestTXIDSortsAcrossGoroutines(t *testing.T) {
	ids := make(chan TXID)
	go func() {
		defer close(ids)
		for range 50_000 {
			ids <- NewTXID()
		}
	}()
	for theirs := range ids {
		if ours := NewTXID(); ours.String() <= theirs.String() {
			t.Fatalf("after %v came %v", theirs, ours)
		}
	}
}

func TestTXIDClock(t *testing.T) {
	clock := newFakeClock(0)
	gen := NewTXIDGenerator(WithClock(clock), seeded())
	start := clock.Wall()
	last := gen.New()
	for _, tt := range []struct {
		name string
		set  time.Duration // of the wall clock, after start
		pass time.Duration
		want time.Duration // of the ID, after start
	}{
		{"nothing", 0, 0, 0},
		{"a millisecond", 0, time.Millisecond, time.Millisecond},
		{"back an hour", -time.Hour, 0, time.Millisecond},
		{"a second after that", -time.Hour, time.Second, time.Second + time.Millisecond},
		{"forward an hour", time.Hour, time.Millisecond, time.Hour + time.Millisecond},
		{"back to the truth", time.Second, 0, time.Hour + time.Millisecond},
		{"a minute after that", time.Minute, time.Minute, time.Hour + time.Minute + time.Millisecond},
		{"the truth has caught up", 3 * time.Hour, time.Millisecond, 3*time.Hour + time.Millisecond},
	} {
		clock.set(start.Add(tt.set))
		clock.pass(tt.pass)
		for range 1000 {
			id := gen.New()
			if id.String() <= last.String() {
				t.Fatalf("%s: after %v came %v", tt.name, last, id)
			}
			// While the clock stands, IDs may run into the next millisecond.
			if got := id.Time().Sub(start); got != tt.want && got != tt.want+time.Millisecond {
				t.Fatalf("%s: time is %v after the start, want %v", tt.name, got, tt.want)
			}
			last = id
		}
	}
}

func TestTXIDStampIsExact(t *testing.T) {
	check := func(nanos uint64) {
		exact := new(big.Int).SetUint64(nanos)
		exact.Lsh(exact, txidGrowingBits).Div(exact, big.NewInt(1e6))
		stamp := txidStamp(int64(nanos))
		if stamp>>txidGrowingBits != nanos/1e6 || stamp-exact.Uint64() > 1 {
			t.Errorf("%d nanoseconds are %d, want %d", nanos, stamp, exact)
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 200_000 {
		millis := random.Uint64N(1 << 42)
		for _, nanos := range []uint64{0, 1, random.Uint64N(1e6), 999_999} {
			check(millis*1e6 + nanos)
		}
	}
}

// Every bit after the time is set in about half of the IDs, and two IDs agree
// in about half of them.
func TestTXIDBitsLookRandom(t *testing.T) {
	const n = 4000
	clock := newFakeClock(0)
	gen := NewTXIDGenerator(WithClock(clock))
	var set [txidRandomBits]int
	differ, last := 0, uint64(0)
	for range n {
		clock.pass(time.Millisecond)
		random := gen.New().Random()
		for i := range set {
			set[i] += int(random >> i & 1)
		}
		differ += bits.OnesCount64(random ^ last)
		last = random
	}
	for i, count := range set {
		if count < n*4/10 || count > n*6/10 {
			t.Errorf("bit %d is set in %d of %d IDs", i, count, n)
		}
	}
	if mean := float64(differ) / n; mean < 26 || mean > 28 {
		t.Errorf("two IDs differ in %.2f bits, want 27", mean)
	}
}

func TestTXIDWithItsOwnRandomness(t *testing.T) {
	clock := newFakeClock(0)
	a := NewTXIDGenerator(WithClock(clock), seeded()).New()
	b := NewTXIDGenerator(WithClock(clock), seeded()).New()
	if a.Time() != b.Time() || a.Random()&txidNonceMask != b.Random()&txidNonceMask {
		t.Errorf("the same clock and randomness gave %v and %v", a, b)
	}
}
