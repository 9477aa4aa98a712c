//go:build linux

package main

import (
	"slices"
	"testing"
)

// A timeline shows the faults that were in progress in an example, or shortly before,
// ordered by their beginning.
func TestTimeline(t *testing.T) {
	const second = int64(1e9)
	l := timeline{spans: []span{
		{moment{10 * second, 12 * second}, "stop", 3},
		{moment{1 * second, 2 * second}, "over", 0},
		{moment{9 * second, 9 * second}, "kill", 2},
		{moment{8 * second, 30 * second}, "away", 0},
		{moment{21 * second, 22 * second}, "later", 0},
	}}
	l.begin("still", 4)
	l.spans[len(l.spans)-1].from = 15 * second
	got := l.around([]moment{{10 * second, 20 * second}}, second)
	want := []string{
		"fault away from 7000.000 to 29000.000",
		"fault kill from 8000.000 to 8000.000 of process 2",
		"fault stop from 9000.000 to 11000.000 of process 3",
		"fault still from 14000.000 of process 4",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := l.around(nil, 0); got != nil {
		t.Errorf("without an example: %q", got)
	}
}
