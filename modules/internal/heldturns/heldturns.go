// Package heldturns finds the turns that a request has at the moment, whichever handlers have
// taken them. A handler that asks for another turn says which ones these are; see
// [serializer.Arrival.Holds].
package heldturns

import "github.com/orderly-http/caddy-orderly/serializer"

// The variables of a request in which handlers keep what they know of it. There, a value that
// is a [Holder] may hold turns.
const (
	Serialize = "orderly.serialize"
	Once      = "orderly.once"
)

// Holder is what a handler knows of a request.
type Holder interface {
	// Held appends the turns that the request has at the moment.
	Held(turns []serializer.Turn) []serializer.Turn
}

// Of returns the turns that the request with these variables has at the moment.
func Of(vars map[string]any) (turns []serializer.Turn) {
	for _, name := range [...]string{Serialize, Once} {
		if h, ok := vars[name].(Holder); ok {
			turns = h.Held(turns)
		}
	}
	return turns
}
