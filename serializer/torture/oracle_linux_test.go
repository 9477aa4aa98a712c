package main

import (
	"maps"
	"slices"
	"testing"
)

// The oracle finds what is wrong in a history, and only that.
func TestOracle(t *testing.T) {
	a, b := who{1, 0}, who{2, 0}
	enter := func(w who, token uint64) record { return record{who: w, what: enters, token: token} }
	leave := func(w who) record { return record{who: w, what: leaves} }
	for _, test := range []struct {
		name    string
		history []record
		want    []string
	}{
		{"one after the other", []record{enter(a, 1), leave(a), enter(b, 2), leave(b)}, nil},
		{"together", []record{enter(a, 1), enter(b, 2)}, []string{overlap}},
		{"in the wrong order", []record{enter(a, 2), leave(a), enter(b, 1)}, []string{inversion}},
		{"after a death", []record{enter(a, 1), {who: a, what: dies}, enter(b, 2)}, nil},
		{"by a dead process", []record{{who: a, what: dies}, enter(a, 1), enter(b, 2)}, nil},
		{"evicted on request", []record{{who: a, what: evicts, token: 3}, {who: b, what: revokes, token: 3}}, nil},
		{"evicted without", []record{{who: b, what: revokes, token: 3}}, []string{evictedUnasked}},
		{"in vain", []record{{who: b, what: refuses, outcome: starved}}, []string{inVain}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOracle()
			for i, r := range test.history {
				r.at = int64(i + 1)
				o.judge(&r)
			}
			if found := slices.Sorted(maps.Keys(o.found)); !slices.Equal(found, test.want) {
				t.Errorf("found %q; expected %q", found, test.want)
			}
		})
	}
}
