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

// Admits reports whether an arrival may enter behind ahead others in its queue,
// of which shared are readers. Arrivals further back never matter: a reader
// behind a waiting writer waits, so no writer starves.
func (r Rule) Admits(ahead, shared int) bool {
	if r.Shared {
		return shared == ahead && (r.Limit <= 0 || ahead < r.Limit)
	}
	return shared == 0 && ahead < max(r.Limit, 1)
}

// Capacity returns how many arrivals of this rule may be inside together. Zero
// means no limit.
func (r Rule) Capacity() int {
	if r.Shared {
		return max(r.Limit, 0)
	}
	return max(r.Limit, 1)
}

// Alone reports whether an arrival with this rule is always inside alone.
func (r Rule) Alone() bool { return !r.Shared && r.Limit <= 1 }

// AsStrictAs reports whether this rule never admits an arrival beside more than another
// rule would.
func (r Rule) AsStrictAs(o Rule) bool {
	if r.Alone() {
		return true
	}
	mine, others := r.Capacity(), o.Capacity()
	return r.Shared == o.Shared && (others == 0 || mine != 0 && mine <= others)
}
