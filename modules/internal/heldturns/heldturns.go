// Package heldturns finds the turns that a request has at the moment, whichever handlers have
// taken them. A handler that asks for another turn says which ones these are; see
// [serializer.Arrival.Holds].
package heldturns

import (
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/serializer"
)

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

	// Innermost is the context of the turn that it has taken last of those, or nil.
	Innermost() *turncontext.Context
}

// Of returns the turns that the request with these variables has at the moment.
func Of(vars map[string]any) (turns []serializer.Turn) {
	for _, h := range holders(vars) {
		turns = h.Held(turns)
	}
	return turns
}

func holders(vars map[string]any) (found []Holder) {
	for _, name := range [...]string{Serialize, Once} {
		if h, ok := vars[name].(Holder); ok {
			found = append(found, h)
		}
	}
	return found
}

// Around is the context of the turn that the request with these variables has taken last of
// those that it has at the moment, or nil.
func Around(vars map[string]any) (innermost *turncontext.Context) {
	for _, h := range holders(vars) {
		if c := h.Innermost(); c.Depth() > innermost.Depth() {
			innermost = c
		}
	}
	return innermost
}
