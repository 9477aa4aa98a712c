package waitingpage

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// Each order is as likely as any other, however many share a chance, and each of those who share it.
func TestDrawIsRandom(t *testing.T) {
	const draws = 24000
	count := make(map[[4]int]int)
	for i := range draws {
		list := []*lot{{number: 1, value: 1}, {number: 2, value: 2}, {number: 3, value: 2}, {number: 4, value: 4}}
		order(list, fmt.Sprint("seed ", i))
		count[[4]int{list[0].number, list[1].number, list[2].number, list[3].number}]++
	}
	if len(count) != 12 { // six of the three values, with either 2 or 3
		t.Fatalf("orders %v", count)
	}
	for numbers, n := range count {
		if want := draws / 12.0; math.Abs(float64(n)-want) > 6*math.Sqrt(want) {
			t.Errorf("order %d came %d times; expected about %.0f", numbers, n, want)
		}
	}
}

// Before the opening, a browser is asked to come after a tenth of the time left, and spread over a
// second at the moment.
func TestNextAsk(t *testing.T) {
	for left, want := range map[time.Duration][2]time.Duration{
		24 * time.Hour: {mostAsk, mostAsk}, 10 * time.Minute: {time.Minute, time.Minute}, 5 * time.Second: {leastAsk, leastAsk},
		time.Second: {time.Second, 2 * time.Second}, -time.Second: {0, time.Second},
	} {
		var times []time.Duration
		for range 20 {
			times = append(times, nextAsk(left))
		}
		least, most := slices.Min(times), slices.Max(times)
		if least < want[0] || most > want[1] || (least == most) != (want[0] == want[1]) {
			t.Errorf("with %v left: %v to %v; expected %v to %v", left, least, most, want[0], want[1])
		}
	}
}

// A queue that has opened stays open if the clock is set back.
func TestClockIsSetBack(t *testing.T) {
	moment := time.Now().Add(time.Hour)
	o := &Opening{line: &Line{Opens: moment}, opened: moment}
	if _, closed := o.Closed(); closed {
		t.Error("the queue is closed again")
	}
}
