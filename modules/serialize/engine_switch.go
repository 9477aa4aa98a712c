package serialize

import (
	"cmp"
	"context"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/engineswitch"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// arrive returns once a request may join the engine's queue behind all requests of any
// engine. One that is inside the queue would wait for itself.
func (v *visit) arrive(ctx context.Context, a *serializer.Arrival) error {
	if v.insideElsewhere() {
		return nil
	}
	return v.local.Arrive(ctx, v.engine.sharedEngine, v.engine.directory.names, a)
}

// join asks for a turn without waiting for it: see [engineswitch.Turn.Join].
func (e *engineRef) join(t *engineswitch.Turn, a serializer.Arrival, done func(error)) serializer.Wait {
	return t.Join(e.sharedEngine, e.Engine, e.directory.names, a, done)
}

// insideElsewhere reports whether the request is inside this queue already, by
// another engine. Then it holds the turn among all requests of this process.
func (v *visit) insideElsewhere() bool {
	at := cmp.Or(v.engine, v.handler.engine).directory // one that is still to take its ticket has none yet
	for outer := v.next; outer != nil; outer = outer.next {
		if outer.turn != nil && !outer.ended.Load() && outer.queue == v.queue && outer.engine.directory.same(at) {
			return true
		}
	}
	return false
}
