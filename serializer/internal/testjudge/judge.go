// Package testjudge judges what happens in a queue: who is inside with whom, and in which order they enter.
package testjudge

import (
	"slices"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Turn is what rules say of a turn.
type Turn struct {
	Rule  serializer.Rule
	Token uint64
	Slots bool   // the queue has slots
	Slot  string // which one the turn has
}

// Together reports whether turns may be inside at the same time: only readers or only writers, no more
// than each of them allows, and each on a slot of its own. This is the rule of admission.go once more, so
// that no test judges that package by itself.
func Together(turns ...Turn) bool {
	for i, turn := range turns {
		most := turn.Rule.Limit
		if !turn.Rule.Shared {
			most = max(most, 1)
		}
		if turn.Rule.Shared != turns[0].Rule.Shared || most > 0 && len(turns) > most {
			return false
		}
		same := func(other Turn) bool { return other.Slot == turn.Slot }
		if turn.Slots && (turn.Slot == "" || slices.ContainsFunc(turns[:i], same)) {
			return false
		}
	}
	return true
}

// Holder has a turn.
type Holder interface{ Judged() Turn }

// Queue judges a queue by entries and leaves, which must be reported in order: each entry after the turn has
// begun, and each leave before it ends.
type Queue[H Holder] struct {
	// Excused reports whether a holder may be inside with an earlier one, or have a smaller token, all the
	// same. Nil excuses nobody.
	Excused func(before, h H) bool

	inside []H
	recent []entry[H]
}

// entry is a holder, and the turns that have entered since with smaller tokens. They must have been admitted
// with it or before, and perhaps waited for a slot: so all may be inside together, apart from slots.
type entry[H Holder] struct {
	holder H
	turn   Turn
	late   []Turn
}

// recentKept is how many entries are compared with later ones.
const recentKept = 512

// Enter reports an entry. It returns holders that must not be inside together, and those whose order is wrong.
func (q *Queue[H]) Enter(h H) (overlap, inversion []H) {
	others := q.inside
	if !together(h, others) {
		others = slices.DeleteFunc(slices.Clone(others), func(other H) bool { return q.excused(other, h) })
	}
	if !together(h, others) {
		overlap = append(slices.Clone(others), h)
	}
	q.inside = append(q.inside, h)
	turn := h.Judged()
	turn.Slots = false
	for i := range q.recent {
		e := &q.recent[i]
		if e.turn.Token < turn.Token || q.excused(e.holder, h) {
			continue
		}
		if e.late = append(e.late, turn); e.turn.Token == turn.Token || !Together(append(e.late, e.turn)...) {
			inversion = []H{e.holder, h}
		}
	}
	if len(q.recent) == recentKept {
		q.recent = append(q.recent[:0], q.recent[recentKept/2:]...)
	}
	q.recent = append(q.recent, entry[H]{holder: h, turn: turn})
	return overlap, inversion
}

// Leave reports that some holders are not inside any more.
func (q *Queue[H]) Leave(left func(H) bool) { q.inside = slices.DeleteFunc(q.inside, left) }

func (q *Queue[H]) excused(before, h H) bool { return q.Excused != nil && q.Excused(before, h) }

func together[H Holder](h H, others []H) bool {
	turns := []Turn{h.Judged()}
	for _, other := range others {
		turns = append(turns, other.Judged())
	}
	return Together(turns...)
}
