package results

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func example() Set {
	var s Set
	free, queue := Case{Subject: "free", Clients: 32}, Case{Subject: "queue, \"x\"", Clients: 32, Hold: 500 * time.Microsecond}
	s.Add(free, 1, "rate", 100, "1/s")
	s.Add(queue, 1, "rate", 50, "1/s")
	s.Add(queue, 2, "rate", 90, "1/s")
	s.Add(free, 2, "rate", 300, "1/s")
	return s
}

func TestCSV(t *testing.T) {
	var buf bytes.Buffer
	if err := example().Write(&buf); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, example()) {
		t.Errorf("read back %+v", got)
	}
}

func TestReadRefuses(t *testing.T) {
	head := strings.Join(header, ",") + "\n"
	for _, text := range []string{"", "a,b\n", head + "x,1\n", head + "x,one,,,,1,m,1,u\n", head + "x,,,,,1,m,fast,u\n"} {
		if set, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("Read(%q) = %v, want an error", text, set)
		}
	}
}

// The ratio of a run is that to its neighbour, not to the median of all.
func TestRatio(t *testing.T) {
	s := example()
	cases := s.Cases("rate")
	got := s.Ratio(cases[1], cases[0], "rate")
	if got.Min != 0.3 || got.Max != 0.5 || got.Median != 0.4 {
		t.Errorf("got %+v, want 0.3 to 0.5", got)
	}
}
