package telemetry

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Bug: Retry-After took no account of concurrency: it said 18 s where a place was free in
// 4. Nor did it take account of the current holds: with 21 ahead, it began at 1.
func TestRetryAfter(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name        string
		ended       []time.Duration // holds
		ages        []time.Duration // of holds that go on
		concurrency int
		readers     bool
		position    int
		least       time.Duration // of all holds
		want        string
	}{
		{"nobody ahead, nothing known", nil, nil, 1, false, 0, 0, "1"},
		{"21 ahead, nothing known", nil, []time.Duration{s / 100}, 1, false, 21, 0, "22"},
		{"21 ahead, the first goes on", nil, []time.Duration{3 * s}, 1, false, 21, 0, "66"},
		{"the first that ends is the mean", []time.Duration{4 * s}, nil, 1, false, 2, 0, "12"},
		{"the mean of the first ones", []time.Duration{4 * s, 12 * s}, nil, 1, false, 0, 0, "8"},
		{"four places", []time.Duration{2 * s}, nil, 4, false, 7, 0, "4"},
		{"holds that go on, shorter than usual", []time.Duration{2 * s}, []time.Duration{s, s}, 2, false, 3, 0, "4"},
		{"a hold that goes on for longer", []time.Duration{2 * s}, []time.Duration{10 * s}, 1, false, 3, 0, "40"},
		{"one of two places is stuck", []time.Duration{2 * s}, []time.Duration{20 * time.Minute, s}, 2, false, 3, 0, "8"},
		{"the only place is stuck", []time.Duration{s}, []time.Duration{20 * time.Minute}, 1, false, 1, 0, "120"},
		{"very quick", []time.Duration{1}, nil, 1, false, 100, 0, "1"},
		{"very slow", []time.Duration{24 * time.Hour}, nil, 1, false, 1 << 40, 0, "120"},
		{"holds of no time at all", []time.Duration{0, 0}, nil, 1, false, 100, 0, "1"},
		{"behind five readers", []time.Duration{2 * s}, []time.Duration{s, s, s, s, s}, 1, true, 9, 0, "4"},
		{"behind a writer", []time.Duration{2 * s}, []time.Duration{s}, 1, true, 9, 0, "20"},
		{"readers, all inside elsewhere", []time.Duration{2 * s}, nil, 1, true, 9, 0, "20"},
		{"as many as come", []time.Duration{2 * s}, []time.Duration{s}, 1 << 60, false, 3, 0, "1"}, // bug: time for each of them
		{"held, nothing known", nil, []time.Duration{s}, 10, false, 10, 60 * s, "66"},
		{"held, after an eviction", []time.Duration{s}, nil, 1, false, 1, 6 * s, "12"},
	} {
		var r Estimate
		now := time.Now()
		for _, hold := range c.ended {
			r.add(hold)
		}
		if c.readers {
			c.concurrency = 0
		}
		if got := r.RetryAfter(c.position, c.concurrency, c.ages, c.least, nil, now); got != c.want {
			t.Errorf("%s: %s; expected %s", c.name, got, c.want)
		}
	}
}

// Estimates on the waiting page are right, or there is none. Twenty wait at any time, and
// ask again and again until they enter. Bug: the next of the queue read 40 s five seconds
// before its turn.
func TestGuess(t *testing.T) {
	const n = 400
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name                string
		hold                func(i int) float64 // in seconds
		capacity, elsewhere int                 // how many of those inside are in other processes
		said, right, wrong  float64             // how many guesses there must be; within a third; off by more than half
	}{
		{"constant", func(int) float64 { return 40 }, 1, 0, .95, 1, 0},
		{"constant, four at a time", func(int) float64 { return 40 }, 4, 0, .95, 1, 0},
		{"constant, by another process", func(int) float64 { return 40 }, 1, 1, .85, 1, 0},
		{"doubled", func(i int) float64 { return 10 + float64(i*2/n*10) }, 1, 0, .9, .95, .01},
		{"halved", func(i int) float64 { return 20 - float64(i*2/n*10) }, 1, 0, .9, .95, .04},
		{"a half more or less", func(int) float64 { return 10 * (.5 + random.Float64()) }, 1, 0, .8, .95, .01},
		{"a half more or less, four at a time", func(int) float64 { return 10 * (.5 + random.Float64()) }, 4, 0, .75, .9, .03},
		{"random: exponential", func(int) float64 { return 10 * random.ExpFloat64() }, 1, 0, 0, .75, .2},
		{"one in ten takes eleven times as long", func(int) float64 { return 5 + 50*math.Floor(random.Float64()+.1) }, 1, 0, 0, 0, 1},
	} {
		all, said, right, wrong := 0., 0., 0., 0.
		for _, a := range simulate(c.capacity, c.elsewhere, n, c.hold) {
			all++
			if a.guess == 0 {
				continue
			}
			said++
			if off := math.Abs(a.guess - a.wait); off <= a.wait/3 {
				right++
			} else if off > a.wait/2 {
				wrong++
			}
		}
		t.Logf("%s: %.0f%% of %.0f are told, %.1f%% of these right within a third, %.1f%% wrong by more than half",
			c.name, 100*said/all, all, 100*right/max(said, 1), 100*wrong/max(said, 1))
		if said < c.said*all || right < c.right*said || wrong > c.wrong*said {
			t.Errorf("%s: expected at least %.0f%%, %.0f%% and at most %.0f%%", c.name, 100*c.said, 100*c.right, 100*c.wrong)
		}
	}
}

// asked is what a waiter was told, and how long it then took.
type asked struct{ guess, wait float64 }

// simulate lets requests with given holds through a queue in which others always wait, on a
// clock of its own.
func simulate(capacity, elsewhere, n int, hold func(i int) float64) (answers []asked) {
	const waiters = 20
	var e Estimate
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	type inside struct{ entered, left float64 }
	var holds []inside // of the present ones, the next to leave first
	told := make(map[int][]asked)
	entered, now, asks := 0, 0., 0.
	for entered < n {
		for len(holds) < capacity {
			for _, a := range told[entered] {
				answers = append(answers, asked{a.guess, now - a.wait})
			}
			holds = append(holds, inside{now, now + hold(entered)})
			entered++
		}
		slices.SortFunc(holds, func(a, b inside) int { return int(math.Copysign(1, a.left-b.left)) })
		for moved := now; asks < holds[0].left; asks += 3.7 {
			ages := []time.Duration{}
			for _, h := range holds[elsewhere:] {
				ages = append(ages, seconds(asks-h.entered))
			}
			slices.SortFunc(ages, func(a, b time.Duration) int { return int(b - a) })
			for number := 1; number <= waiters; number++ {
				guess := e.Guess(number, capacity, ages, seconds(asks-moved))
				told[entered+number-1] = append(told[entered+number-1], asked{guess, asks})
			}
		}
		now = holds[0].left
		e.add(seconds(now - holds[0].entered))
		holds = holds[1:]
	}
	return answers
}
