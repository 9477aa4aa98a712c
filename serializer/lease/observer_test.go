package lease

import (
	"slices"
	"testing"
	"time"
)

// A session ends if its counter does not move for its time to live, however it has moved before.
func TestObserver(t *testing.T) {
	const never, already = int64(time.Hour / time.Microsecond), 0
	for name, test := range map[string]struct {
		reads [][]Heartbeat
		ends  []int64
	}{
		"new":          {[][]Heartbeat{{{1, 5, never}}}, nil},
		"stale":        {[][]Heartbeat{{{1, 5, already}, {2, 6, never}}, {{1, 5, never}, {2, 6, already}}}, []int64{1}},
		"renewed":      {[][]Heartbeat{{{1, 5, already}}, {{1, 6, never}}}, nil},
		"set back":     {[][]Heartbeat{{{1, 5, already}}, {{1, 4, never}}}, nil},
		"gone":         {[][]Heartbeat{{{1, 5, already}}, {}}, nil},
		"gone, and on": {[][]Heartbeat{{{1, 5, already}}, {}, {{1, 5, never}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var o Observer
			for _, read := range test.reads {
				o.See(read)
			}
			if ids, renewals := o.Stale(); !slices.Equal(ids, test.ends) || len(renewals) != len(ids) {
				t.Errorf("%d have ended; expected %d", ids, test.ends)
			}
		})
	}
	if next := new(Observer).See([]Heartbeat{{1, 0, 2e6}, {2, 0, 1e6}, {3, 0, never * 2}}); next != time.Second {
		t.Errorf("the next one may end in %s", next)
	}
}
