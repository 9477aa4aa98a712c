package testcaddy

import "time"

// Span is a time during which a turn was inside, at least: from the first thing that a site has seen of
// it to the latest.
type Span struct{ First, Latest time.Time }

// MostAtOnce is how many turns were inside at one moment, at least, by what a site has seen of them.
func MostAtOnce[Token comparable](turns map[Token]*Span) (most int) {
	for _, turn := range turns {
		inside := 0
		for _, other := range turns {
			if !other.First.After(turn.First) && other.Latest.After(turn.First) {
				inside++
			}
		}
		most = max(most, inside)
	}
	return most
}
