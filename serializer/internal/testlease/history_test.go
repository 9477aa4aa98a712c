package testlease

import (
	"math"
	"testing"
)

// The judge must detect what it is meant to detect.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		holds []*Hold
		ok    bool
	}{
		"one after the other":          {[]*Hold{{1, 0, 1, 2, ""}, {2, 0, 3, 4, ""}}, true},
		"the last one is still there":  {[]*Hold{{1, 0, 1, 2, ""}, {2, 0, 3, math.MaxInt64, ""}}, true},
		"overlap":                      {[]*Hold{{1, 0, 1, 4, ""}, {2, 0, 3, 5, ""}}, false},
		"overlap with one still there": {[]*Hold{{1, 0, 1, math.MaxInt64, ""}, {2, 0, 3, 5, ""}}, false},
		"inversion":                    {[]*Hold{{2, 0, 1, 2, ""}, {1, 0, 3, 4, ""}}, false},
		"on two slots":                 {[]*Hold{{1, 0, 1, 4, "a"}, {2, 0, 3, 5, "b"}}, true},
		"out of order on a slot":       {[]*Hold{{2, 0, 1, 2, "a"}, {1, 0, 3, 4, "a"}}, true},
		"two on a slot":                {[]*Hold{{1, 0, 1, 4, "a"}, {2, 0, 3, 5, "a"}}, false},
		"the same token":               {[]*Hold{{1, 0, 1, 2, ""}, {1, 0, 3, 4, ""}}, false},
	} {
		h := NewHistory()
		h.holds = test.holds
		if err := h.Judge(); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
