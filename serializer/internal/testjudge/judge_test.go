package testjudge

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Judged is the turn itself.
func (t Turn) Judged() Turn { return t }

// The judge must find what it is meant to find, and only that. Negative numbers are tokens that leave.
func TestQueue(t *testing.T) {
	writer, reader, slots := serializer.Rule{}, serializer.Rule{Shared: true}, serializer.Rule{Limit: 3}
	for name, test := range map[string]struct {
		rule    serializer.Rule
		history []int
		want    string
	}{
		"one after the other":         {writer, []int{1, -1, 2}, ""},
		"together":                    {writer, []int{1, 2}, "overlap"},
		"in the wrong order":          {writer, []int{2, -2, 1}, "inversion"},
		"the same token":              {writer, []int{1, -1, 1}, "inversion"},
		"readers in any order":        {reader, []int{3, 2, -2, 1}, ""},
		"on three slots":              {slots, []int{1, 2, 3}, ""},
		"on one slot":                 {slots, []int{1, 2, 4}, "overlap"},
		"on a slot that is free":      {slots, []int{1, 2, -2, 3, 5}, ""},
		"on no slot":                  {slots, []int{100}, "overlap"},
		"reported late":               {slots, []int{4, 3, -3, 2}, ""},
		"later than could be inside":  {slots, []int{5, 4, -4, 3, -3, 1}, "inversion"},
		"late, on the slot of others": {slots, []int{5, -5, 2}, ""},
	} {
		var q Queue[Turn]
		got := ""
		for _, n := range test.history {
			turn := Turn{Rule: test.rule, Token: uint64(max(n, -n)), Slots: test.rule == slots}
			if n < 100 {
				turn.Slot = string(rune('a' + turn.Token%3))
			}
			if n < 0 {
				q.Leave(func(other Turn) bool { return other == turn })
			} else if overlap, inversion := q.Enter(turn); overlap != nil {
				got = "overlap"
			} else if inversion != nil {
				got = "inversion"
			}
		}
		if got != test.want {
			t.Errorf("%s: found %q; expected %q", name, got, test.want)
		}
	}
}
