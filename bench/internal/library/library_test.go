package library

import (
	"context"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

func TestMain(m *testing.M) {
	proc.PlayRole(context.Background())
	os.Exit(m.Run())
}

func TestQueueing(t *testing.T) {
	for _, engine := range []string{File, Memory, Channel, Predecessor} {
		got, err := Queueing{Engine{engine, t.TempDir()}, 3, 20, 10 * time.Second}.Run(t.Context())
		if err != nil || got[figures.Turn] <= 0 || got[figures.HandOverLate] < got[figures.HandOver] {
			t.Errorf("%s: %+v, %v", engine, got, err)
		}
	}
}

func TestHandOver(t *testing.T) {
	for name, measure := range map[string]func(context.Context) (figures.Values, error){
		"within":  Relay{t.TempDir(), 1, 2, time.Millisecond, 50}.Run,
		"between": Relay{t.TempDir(), 2, 2, time.Millisecond, 50}.Run,
		"pipe":    Echo{t.TempDir(), time.Millisecond, 50}.Run,
	} {
		got, err := measure(t.Context())
		if err != nil || got[figures.HandOvers] == 0 || got[figures.HandOver] <= 0 || got[figures.HandOverLate] < got[figures.HandOver] {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Only those who waited for the one before them were handed a turn.
func TestHandOvers(t *testing.T) {
	laps := []lap{
		{Token: 30, Entered: 310, Left: 400, LeftWall: 40, Process: 1}, // was waiting
		{Token: 10, Entered: 100, Left: 300, LeftWall: 35, Process: 0},
		{Token: 50, Entered: 505, Left: 600, LeftWall: 60, Process: 1}, // came later
	}
	for between, want := range map[bool][]time.Duration{true: {10}, false: nil} {
		if got, err := handOvers(laps, between); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("between processes %v: %v, %v, want %v", between, got, err, want)
		}
	}
	if _, err := handOvers([]lap{{Token: 1, Entered: 1, Left: 9}, {Token: 2, Entered: 5}}, false); err == nil {
		t.Error("two were inside at once, and nobody says so")
	}
}

func TestFootprint(t *testing.T) {
	got, err := Footprint{Work{Engine: Engine{Engine: Memory}, Callers: 2, Turns: 1000}, 4000}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := got[figures.Allocations]; n < 1 || n > 50 || got[figures.WaiterHeap] < 100 || got[figures.WaiterHeap] > 10_000 {
		t.Errorf("got %+v", got)
	}
	if got[figures.WaiterStack] < -100 {
		t.Errorf("a waiter's stack is smaller than that of any goroutine: %+v", got)
	}
}

func TestParseCounts(t *testing.T) {
	got, err := parseTotal([]byte("events: Ir\nsummary: 9\nfn=(1) main\n1 3\n\ntotals: 273805193\n"))
	if err != nil || got.Sum() != 273805193 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseTotal([]byte("events: Ir\n")); err == nil {
		t.Error("a file without a total was read")
	}
	got, _ = parseCalls([]byte("    calls syscall\n--------- ----------------\n      100 flock\n        2 futex\n--------- ----------------\n      102 total\n"))
	if len(got) != 2 || got.Sum() != 102 || got.Own() != 100 {
		t.Errorf("got %v", got)
	}
}

// Bug: a queue that admitted nobody in time had turns of less than no time.
func TestNoTurnInTime(t *testing.T) {
	for turns := range 2 {
		c := &carousel{began: time.Now(), turns: turns}
		if got := c.values(time.Second); len(got) > 0 {
			t.Errorf("after %d turns: %v", turns, got)
		}
	}
}
