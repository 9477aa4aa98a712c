//go:build linux

package relay

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Play(context.Background())
	os.Exit(m.Run())
}

func TestRelay(t *testing.T) {
	took, err := Relay{Dir: t.TempDir(), Hold: time.Millisecond, Laps: 50}.Run(t.Context())
	if err != nil || took[0] <= 0 {
		t.Errorf("got %v, %v", took, err)
	}
}

// Only those who waited for the one before them were handed a turn.
func TestHandOvers(t *testing.T) {
	const µs = 1000
	laps := []lap{
		{Token: 30, Entered: 310 * µs, Left: 400 * µs, runner: 1}, // was waiting
		{Token: 10, Entered: 100 * µs, Left: 300 * µs, runner: 0},
		{Token: 450, Entered: 505 * µs, Left: 600 * µs, runner: 0}, // came later
		{Token: 500, Entered: 605 * µs, Left: 700 * µs, runner: 0}, // was waiting, in the same process
	}
	if got, err := handOvers(laps); err != nil || !slices.Equal(got, []time.Duration{10 * µs}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := handOvers([]lap{{Token: 1, Entered: 1, Left: 9}, {Token: 2, Entered: 5}}); err == nil {
		t.Error("two were inside at once, and nobody says so")
	}
}
