package servers

import (
	"maps"
	"testing"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

func TestIdleness(t *testing.T) {
	for _, c := range []struct {
		turns []turn
		want  figures.Values
	}{
		{[]turn{{7000, 9000}, {0, 5000}, {10_000, 20_000}}, figures.Values{figures.Inside: 1, figures.Gap: 1.5, figures.GapLate: 1.99, figures.Idle: 15}},
		{[]turn{{0, 5000}, {4000, 10_000}}, figures.Values{figures.Inside: 2, figures.Idle: 0}},
		{[]turn{{0, 5000}}, nil},
	} {
		if got := idleness(c.turns); !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.turns, got, c.want)
		}
	}
}
