package serializer

import "testing"

func TestLimitOfQueue(t *testing.T) {
	reader := Rule{Shared: true}
	for _, c := range []struct {
		name  string
		rules []Rule
		limit int
	}{
		{"alone", []Rule{{}}, 1},
		{"three at a time", []Rule{{Limit: 3}, {Limit: 3}}, 3},
		{"rules that differ", []Rule{{Limit: 1}, {Limit: 3}, {Limit: 2}}, 3},
		{"readers", []Rule{reader, reader}, 0},
		{"a reader behind a writer", []Rule{{Limit: 1}, reader}, 0},
		{"a writer behind a reader", []Rule{reader, {Limit: 1}}, 0},
		{"a few readers", []Rule{{Limit: 1}, {Shared: true, Limit: 4}}, 4},
	} {
		var q QueueState
		for _, r := range c.rules {
			q.Add(TicketState{}, r)
		}
		if q.Limit != c.limit {
			t.Errorf("%s: limit %d; expected %d", c.name, q.Limit, c.limit)
		}
	}
}
