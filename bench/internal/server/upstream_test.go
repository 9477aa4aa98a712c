//go:build linux

package server

import (
	"slices"
	"testing"
	"time"
)

func TestGaps(t *testing.T) {
	if got := Gaps([]Visit{{7000, 9000}, {0, 5000}, {10_000, 20_000}}); !slices.Equal(got, []time.Duration{1000, 2000}) {
		t.Errorf("got %v", got)
	}
	if got := Gaps([]Visit{{0, 5000}, {4000, 10_000}}); got[0] >= 0 {
		t.Errorf("two were inside at once, and the gap is %v", got[0])
	}
}
