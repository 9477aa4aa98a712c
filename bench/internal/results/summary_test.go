package results

import (
	"math"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		sorted []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4}, 0.5, 2.5},
		{[]float64{1, 2, 3}, 0, 1},
		{[]float64{1, 2, 3}, 1, 3},
	} {
		if got := Quantile(c.sorted, c.q); got != c.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.sorted, c.q, got, c.want)
		}
	}
	if got := Quantile[float64](nil, 0.5); !math.IsNaN(got) {
		t.Errorf("the quantile of nothing is %v, want NaN", got)
	}
}

func TestSummarize(t *testing.T) {
	if got, want := Summarize([]float64{3, 1, 2}), (Summary{Median: 2, Min: 1, Max: 3, N: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Summarize(nil); !math.IsNaN(got.Median) || got.N != 0 {
		t.Errorf("the summary of nothing is %+v", got)
	}
}
