package figures

import "testing"

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
