package serialize

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// In a dry run, every request enters at once. It still takes a ticket, as a reader that
// nobody keeps out, so that all processes and all lists see it. What it would have met in a
// real queue follows from the tickets ahead of it.
//
// A dry run must not harm a live site. So a request passes without a ticket if the storage
// fails, and nothing cancels a request but its client and an eviction.

// openDoors takes back the settings that could delay, refuse or cancel a request.
func (s *Handler) openDoors() {
	s.rule = serializer.Rule{Shared: true}
	s.shared = s.rule
	s.QueueLength, s.WhenFull, s.OnDisconnect = 0, dropNewest, onDisconnectCancel
	s.HoldTimeout, s.Buffer, s.ResponseBuffer, s.WaitingPage = new(caddy.Duration), new(bufferOff), new(Size), nil
}

// recordDryRun records what a request has met in a dry run.
func (v *visit) recordDryRun(r *http.Request) {
	ahead := v.turn.Position()
	v.dryOutcome = outcomeWouldEnter
	if v.wouldWait(ahead) {
		v.dryOutcome = outcomeWouldWait
		v.handler.logWouldWait(r, v, ahead)
	}
}

// wouldWait reports whether a request would have waited, with this many ahead of it. Which
// requests of other processes are readers is not known, so a reader waits for them.
func (v *visit) wouldWait(ahead int) bool {
	s := v.handler
	rule, shared := s.engineRules()
	if !v.age.Reader {
		return ahead >= rule.Capacity()
	}
	limit := cmp.Or(shared.Capacity(), ahead+1)
	return ahead >= limit || ahead > s.meters.holdAges.Readers(v.queue)
}

// revokeDry revokes the turn of a request in a dry run only if somebody evicts it.
func (v *visit) revokeDry(cause error) {
	if errors.Is(cause, serializer.ErrEvicted) {
		v.revoke(cause)
	}
}

// turnAway refuses a request that has no turn. In a dry run, it serves a request that has
// none because the storage fails.
func (v *visit) turnAway(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, err error) error {
	s := v.handler
	refused := refusalOf(v.queue, err)
	if !s.DryRun || !refused.Reason.IsFailure() {
		return v.refuse(w, r, err)
	}
	s.meters.count(string(refused.Reason))
	s.logTicketless(v, refused.Reason, err)
	return next.ServeHTTP(w, r)
}
