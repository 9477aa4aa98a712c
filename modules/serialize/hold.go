package serialize

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// least is how long a turn lasts at least.
func (s *Handler) least() time.Duration {
	return time.Duration(*cmp.Or(s.HoldAtLeast, new(caddy.Duration)))
}

// endTurn hands the turn over, now or when it has lasted for long enough. Until then, the ticket is inside
// without its request: the store and other processes see an ordinary holder, so no clock is compared
// between processes. The engine stays open, through reloads. So does what is counted of the turn. A turn that
// is taken back, or was before, ends at once.
func (p *passage) endTurn() {
	switch {
	case p.visit != nil:
		p.visit.Leave()
	case p.heldUntil.IsZero():
		p.turnEnded()
	default:
		held, cancel := context.WithDeadline(p.turn.Context(), p.heldUntil)
		stop := context.AfterFunc(held, func() { cancel(); p.turnEnded() })
		p.held.Store(&stop)
	}
}

func (p *passage) turnEnded() {
	p.turn.Leave()
	p.engine.Release()
	p.handler.report.Ended(&p.about, p.handler.Visit != nil)
}

// reenter makes a request that has left, and whose turn is held, a holder again until endTurn: it
// may come to its queue by an error route. It reports whether it has a turn.
func (p *passage) reenter() bool {
	stop := p.held.Swap(nil)
	return stop != nil && (*stop)()
}

// serveHeld serves a request inside, by the turn of an earlier passage that has reentered. This
// passage is the one that a limit, an operator or a lost lease revokes.
func (p *passage) serveHeld(earlier *passage, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	p.context.Init(r, p.handler.OnDisconnect == onDisconnectFinish, p.all.turns)
	p.turn, p.about = earlier.turn, earlier.about
	p.about.Since = time.Now()
	p.all.add(p, r)
	p.turn.SetCaller(p, p.revoke)
	leave := func() {
		if p.context.End() {
			p.turn.SetCaller(earlier, earlier.revoke)
			earlier.endTurn()
		}
	}
	defer leave() // for handlers that panic
	return p.serveInside(w, r, next, leave)
}
