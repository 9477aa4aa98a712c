package figures

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func example() (s Set) {
	free := Case{Suite: "x", Contestant: "free", Clients: 32}
	queue := Case{"x", "servers", "queue, \"x\"", "ext4", "GOGC=400", 1, 32, 500 * time.Microsecond, 50, 2}
	s.Add(free, 1, Values{Rate: 100, Late: 2})
	s.Add(queue, 1, Values{Rate: 50})
	s.Add(queue, 2, Values{Rate: 90})
	s.Add(free, 2, Values{Rate: 300})
	return s
}

func TestCSV(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.csv")
	if err := Write(file, example()); err != nil {
		t.Fatal(err)
	}
	got, err := Read[Row](file)
	if err != nil || !reflect.DeepEqual(Set(got), example()) {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func TestReadRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.csv")
	const head = "suite,group,contestant,file_system,setting,processes,clients,hold_us,waiting,bytes,run,metric,value\n"
	for _, text := range []string{"", "a,b\n", head + "x,1\n", head + "s,,x,,,one,,,,,1,m,1\n", head + "s,,x,,,,,,,,1,m,fast\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if set, err := Read[Row](file); err == nil {
			t.Errorf("%q was read as %v, want an error", text, set)
		}
	}
}

// The ratio of a run is that to its neighbour, not to the median of all.
func TestRatio(t *testing.T) {
	s := example()
	cases := s.Cases(Rate)
	if got, want := s.Ratio(cases[1], cases[0], Rate), (Summary{Median: 0.4, Min: 0.3, Max: 0.5, N: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
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
	one, other := Case{Contestant: "one"}, Case{Contestant: "other"}
	for n, want := range map[int][2]float64{5: {1, 5}, 6: {1, 6}, 9: {2, 8}, 15: {4, 12}} {
		var s Set
		for run := 1; run <= n; run++ {
			s.Add(one, run, Values{Rate: float64(run)})
			s.Add(other, run, Values{Rate: 1})
		}
		if got := s.Interval(one, other, Rate); [2]float64{got.Min, got.Max} != want {
			t.Errorf("of %d: %v to %v, want %v", n, got.Min, got.Max, want)
		}
	}
}
