package serializer

// Rule says with whom an arrival may be inside. The zero value is the strictest:
// alone.
type Rule struct {
	// Shared marks a reader: it may be inside together with other shared
	// arrivals, never with an exclusive one.
	Shared bool

	// Limit is how many arrivals may be inside together with this one,
	// itself included. For exclusive arrivals zero means 1, for shared ones
	// it means no limit.
	Limit int
}

// Admits reports whether an arrival may enter where ahead others are before it
// in line, of which shared ones are readers. Who stands further back never
// matters, so a reader behind a waiting writer waits, and no writer starves.
func (r Rule) Admits(ahead, shared int) bool {
	if r.Shared {
		return shared == ahead && (r.Limit <= 0 || ahead < r.Limit)
	}
	return shared == 0 && ahead < max(r.Limit, 1)
}

// Capacity is how many arrivals of this rule may be inside together. 0 is no
// limit.
func (r Rule) Capacity() int {
	if r.Shared {
		return max(r.Limit, 0)
	}
	return max(r.Limit, 1)
}

// Wider returns the greater of two capacities, of which 0 is no limit.
func Wider(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// strict reports whether the rule is to be alone.
func (r Rule) strict() bool { return !r.Shared && r.Limit <= 1 }
