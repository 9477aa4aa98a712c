package turncontext

import "github.com/orderly-http/caddy-orderly/serializer"

// Turns are those that a request has taken, whichever handlers have taken them. A variable of the
// request has them, which is written once.
type Turns struct{ latest *Context }

const turnsVar = "orderly.turns"

// TurnsOf returns the turns of the request with these variables. The first handler that asks
// provides them.
func TurnsOf(vars map[string]any, provided *Turns) *Turns {
	if turns, ok := vars[turnsVar].(*Turns); ok {
		return turns
	}
	vars[turnsVar] = provided
	return provided
}

// Around is the context of the turn that the request has taken last of those that it has at the
// moment, or nil.
func (t *Turns) Around() *Context {
	c := t.latest
	for c != nil && !c.Inside() {
		c = c.earlier
	}
	return c
}

// Held are the turns that the request has at the moment, as a handler that asks for another one
// says; see [serializer.Arrival.Holds]. One that goes on though the request has left is among them.
func (t *Turns) Held() (held []serializer.Turn) {
	for c := t.latest; c != nil; c = c.earlier {
		if c.Inside() || c.turn.Context().Err() == nil {
			held = append(held, c.turn)
		}
	}
	return held
}
