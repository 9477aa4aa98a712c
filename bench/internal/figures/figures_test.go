package figures

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

func example() *Set {
	s := &Set{Date: "2026-01-02", Machine: "one", Others: []float64{3}}
	free := Case{Who: "free", Clients: 32, Hold: time.Millisecond}
	queue := free
	queue.Who = "queue"
	for _, round := range [][2]float64{{100, 50}, {300, 90}} {
		s.Add(free, Values{"rate": round[0]})
		s.Add(queue, Values{"rate": round[1]})
	}
	return s
}

func TestWriteAndRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := example().Write(file); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || !reflect.DeepEqual(got, example()) {
		t.Errorf("read back %+v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil {
		t.Error("half a file was read")
	}
}

// The ratio of a round is that to its neighbour, not to the median of all.
func TestRatios(t *testing.T) {
	s := example()
	if got := s.Ratios(s.Cases("rate")[1], "rate", "free"); !slices.Equal(got, []float64{0.5, 0.3}) {
		t.Errorf("got %v", got)
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		sorted  []float64
		q, want float64
	}{
		{[]float64{7}, 0.5, 7},
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

// Of 15 values, the fourth and the twelfth enclose the median with 96.5 %.
func TestInterval(t *testing.T) {
	for n, want := range map[int][2]float64{5: {1, 5}, 6: {1, 6}, 9: {2, 8}, 15: {4, 12}} {
		var values []float64
		for i := range n {
			values = append(values, float64(n-i))
		}
		if got := Interval(values); [2]float64{got.Least, got.Most} != want {
			t.Errorf("of %d: %v to %v, want %v", n, got.Least, got.Most, want)
		}
	}
}
