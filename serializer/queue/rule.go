package queue

// Rule determines which other arrivals may be inside together with an arrival. The zero
// value is the strictest: none.
type Rule struct {
	// Shared marks a reader: it may be inside together with other shared
	// arrivals, never with an exclusive one.
	Shared bool

	// Limit is how many arrivals may be inside together with this one, itself included.
	// For exclusive arrivals, zero means 1; for shared ones, it means no limit.
	Limit int
}

// Admits reports whether an arrival may enter behind ahead others in its queue. Of these,
// shared are readers, and room is the narrowest capacity. Arrivals further back never
// matter: a reader behind a waiting writer waits, so no writer starves.
func (r Rule) Admits(ahead, shared, room int) bool {
	room = Narrower(r.Capacity(), room)
	if r.Shared {
		shared -= ahead
	}
	return shared == 0 && (room == 0 || ahead < room)
}

// Capacity returns how many arrivals of this rule may be inside together. Zero
// means no limit.
func (r Rule) Capacity() int {
	if r.Shared {
		return max(r.Limit, 0)
	}
	return max(r.Limit, 1)
}

// Narrower returns the smaller of two capacities, where 0 means no limit.
func Narrower(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Alone reports whether an arrival with this rule is always inside alone.
func (r Rule) Alone() bool { return !r.Shared && r.Limit <= 1 }

// AsStrictAs reports whether this rule never admits an arrival beside more than another
// rule would.
func (r Rule) AsStrictAs(o Rule) bool {
	mine := r.Capacity()
	return r.Alone() || r.Shared == o.Shared && Narrower(mine, o.Capacity()) == mine
}
