package library

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

func TestMain(m *testing.M) {
	proc.PlayRole(context.Background())
	os.Exit(m.Run())
}

func TestQueueing(t *testing.T) {
	for _, engine := range []string{File, Memory, Channel, Predecessor} {
		got, err := Queueing{Engine: Engine{engine, t.TempDir()}, Waiting: 3, Turns: 20, Limit: 10 * time.Second}.Run(t.Context())
		if err != nil || got.Turns != 20 || got.Cost <= 0 || got.Late < got.HandOver {
			t.Errorf("%s: %+v, %v", engine, got, err)
		}
	}
}

func TestRelay(t *testing.T) {
	for _, processes := range []int{1, 2} {
		got, err := Relay{Dir: t.TempDir(), Processes: processes, Runners: 2, Hold: time.Millisecond, Laps: 50}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.N == 0 || got.Median <= 0 || got.Late < got.Median {
			t.Errorf("%d processes: %+v", processes, got)
		}
	}
}

func TestEcho(t *testing.T) {
	got, err := Echo{Dir: t.TempDir(), Hold: time.Millisecond, Laps: 50}.Run(t.Context())
	if err != nil || got.N != 100 || got.Median <= 0 || got.Late < got.Median {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Only those who waited for the one before them were handed a turn.
func TestEvaluate(t *testing.T) {
	within, between, err := evaluate([]lap{
		{Token: 30, Entered: 310, Left: 400, LeftWall: 40, Process: 1}, // was waiting
		{Token: 10, Entered: 100, Left: 300, LeftWall: 35, Process: 0},
		{Token: 50, Entered: 505, Left: 600, LeftWall: 60, Process: 1}, // came later
	})
	if err != nil || between != (Passes{1, 10, 10}) || within.N != 0 {
		t.Errorf("got %+v and %+v, %v", within, between, err)
	}
	if _, _, err := evaluate([]lap{{Token: 1, Entered: 1, Left: 9}, {Token: 2, Entered: 5}}); err == nil {
		t.Error("two were inside at once, and nobody says so")
	}
}

func TestFootprint(t *testing.T) {
	got, err := Footprinting{Work{Engine: Engine{Engine: Memory}, Callers: 2, Turns: 1000}, 500}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Allocations < 1 || got.Allocations > 50 || got.WaitingHeap < 100 || got.WaitingHeap > 10_000 {
		t.Errorf("got %+v", got)
	}
}

func TestCrowded(t *testing.T) {
	for _, engine := range []string{File, Memory, Channel} {
		task := Crowded{Engine: Engine{engine, t.TempDir()}, Waiting: 20, Turns: 100}
		if _, err := proc.Ask[struct{}](t.Context(), "crowded", task, nil); err != nil {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

func TestParseTotal(t *testing.T) {
	got, err := parseTotal([]byte("events: Ir\nsummary: 9\nfn=(1) main\n1 3\n\ntotals: 273805193\n"))
	if err != nil || got != 273805193 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseTotal([]byte("events: Ir\n")); err == nil {
		t.Error("a file without a total was read")
	}
}

func TestParseCalls(t *testing.T) {
	got := parseCalls([]byte("    calls syscall\n--------- ----------------\n      100 flock\n        2 futex\n--------- ----------------\n      102 total\n"))
	if len(got) != 2 || got["flock"] != 100 || got.Sum() != 102 {
		t.Errorf("got %v", got)
	}
}
