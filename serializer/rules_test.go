package serializer

import (
	"testing"
	"time"
)

// Two processes whose tickets have rules of all kinds. Bug: the ticket of another
// process counted as one that is alone until the next tick found out by which
// rule it was in line. So a ticket that may be inside with two others entered
// beside another process's reader, and a reader behind another process's readers
// waited for up to 100 ms.
func TestRulesOfOtherProcesses(t *testing.T) {
	for _, c := range []struct {
		name       string
		one, other Rule
		together   bool
	}{
		{"alone behind alone", Rule{}, Rule{}, false},
		{"alone behind reader", Rule{Shared: true}, Rule{}, false},
		{"limited behind alone", Rule{}, Rule{Limit: 3}, true}, // its own limit decides
		{"limited behind limited", Rule{Limit: 3}, Rule{Limit: 3}, true},
		{"limited behind reader", Rule{Shared: true}, Rule{Limit: 3}, false},
		{"reader behind alone", Rule{}, Rule{Shared: true}, false},
		{"reader behind limited", Rule{Limit: 3}, Rule{Shared: true}, false},
		{"reader behind reader", Rule{Shared: true}, Rule{Shared: true}, true},
		{"limited reader behind reader", Rule{Shared: true}, Rule{Shared: true, Limit: 2}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			one, other := withoutTicks(openAt(t, dir, 0)), withoutTicks(openAt(t, dir, 0))
			enter(t, other, arrival("b_")).Leave() // it hears of the first ticket before its own comes
			first := enter(t, one, ruled(c.one))
			next := started(other, ruled(c.other))
			if c.together {
				get(t, next).Leave()
				first.Leave()
				return
			}
			stays(t, next, "the first is inside")
			first.Leave()
			get(t, next).Leave()
		})
	}
}

// A reader that comes behind a writer of another process, which is behind a
// reader: both get in as soon as it is their turn, also without a tick.
func TestReadersAndWritersOfTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	one, other := withoutTicks(openAt(t, dir, 0)), withoutTicks(openAt(t, dir, 0))
	reader, writer := ruled(Rule{Shared: true}), ruled(Rule{})
	first := enter(t, one, reader)
	second := enter(t, other, reader)
	third := join(t, other, writer)
	fourth, fifth := join(t, one, reader), join(t, other, reader)
	stays(t, third, "readers are inside")
	first.Leave()
	stays(t, third, "a reader is inside")
	second.Leave()
	turn := get(t, third)
	stays(t, fourth, "the writer is inside")
	turn.Leave()
	a, b := get(t, fourth), get(t, fifth)
	a.Leave()
	b.Leave()
}

func ruled(r Rule) Arrival {
	a := arrival("a_")
	a.Rule, a.Timeout = r, 20*time.Second
	return a
}

// withoutTicks lets an engine do only what it does without them.
func withoutTicks(e *File) *File {
	e.tickTime = time.Hour
	return e
}
