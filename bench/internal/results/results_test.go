package results

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

var rate = Metric{"rate", "1/s"}

func example() Set {
	var s Set
	free := Case{Subject: Subject{Name: "free"}, Clients: 32}
	queue := Case{Subject: Subject{"servers", "queue, \"x\"", "ext4", "GOGC=400"}, Clients: 32, Hold: 500 * time.Microsecond}
	s.Add(free, 1, rate, 100)
	s.Add(queue, 1, rate, 50)
	s.Add(queue, 2, rate, 90)
	s.Add(free, 2, rate, 300)
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
	for _, text := range []string{"", "a,b\n", head + "x,1\n", head + ",x,,,one,,,,1,m,1,u\n", head + ",x,,,,,,,1,m,fast,u\n"} {
		if set, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("Read(%q) = %v, want an error", text, set)
		}
	}
}

// The ratio of a run is that to its neighbour, not to the median of all.
func TestRatio(t *testing.T) {
	s := example()
	cases := s.Cases(rate)
	got := s.Ratio(cases[1], cases[0], rate)
	if got.Min != 0.3 || got.Max != 0.5 || got.Median != 0.4 {
		t.Errorf("got %+v, want 0.3 to 0.5", got)
	}
}

func TestSubjectString(t *testing.T) {
	for want, subject := range map[string]Subject{
		"memory":                     {Name: "memory"},
		"respond, file on ext4, x=1": {"respond", "file", "ext4", "x=1"},
	} {
		if got := subject.String(); got != want {
			t.Errorf("%#v is %q, want %q", subject, got, want)
		}
	}
}
