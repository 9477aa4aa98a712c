package serialize

import (
	"cmp"
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// In a dry run, every request enters at once. It still takes a ticket, as a reader
// that nobody keeps out, so that all processes and all lists see it. What it would
// have met in a real queue follows from the tickets ahead of it.
//
// A dry run must not harm a live site. So a request passes without a ticket if the
// storage fails, and nothing cancels a request but its client and an eviction.

// Outcomes of requests in a dry run.
const (
	outcomeWouldEnter = "would_enter"
	outcomeWouldWait  = "would_wait"
)

// openDoors takes back the settings that could delay, refuse or cancel a request.
func (s *Handler) openDoors() {
	s.rule = serializer.Rule{Shared: true}
	s.shared = s.rule
	s.QueueLength, s.HoldTimeout, s.OnDisconnect = 0, 0, onDisconnectCancel
	s.WhenFull, s.Buffer, s.BufferDisk = dropNewest, new(Size), new(Size)
}

// recordDryRun records what a request has met in a dry run.
func (v *visit) recordDryRun(r *http.Request) {
	s := v.handler
	ahead := v.turn.Position()
	s.meters.atOnce.Observe(float64(ahead + 1))
	v.dryOutcome = outcomeWouldEnter
	if s.wouldWait(v, ahead) {
		v.dryOutcome = outcomeWouldWait
		s.logWouldWait(r, v, ahead)
	}
}

// wouldWait reports whether a request would have waited, with this many ahead of it. Which
// requests of other processes are readers is not known, so a reader waits for them.
func (s *Handler) wouldWait(v *visit, ahead int) bool {
	rule, shared := s.engineRules()
	if !v.age.Reader {
		return ahead >= rule.Capacity()
	}
	limit := cmp.Or(shared.Capacity(), ahead+1)
	return ahead >= limit || ahead > s.meters.stats.inside.Readers(v.queue)
}

// outcome is what becomes of a request that was inside. cause says why its hold
// ended early, if it did.
func (v *visit) outcome(cause error) string {
	outcome := outcomeInside(cause)
	if outcome == outcomeEntered && v.dryOutcome != "" {
		return v.dryOutcome
	}
	return outcome
}

// turnAway refuses a request that has no turn. In a dry run, it serves a request that
// has none because the storage fails.
func (s *Handler) turnAway(w http.ResponseWriter, r *http.Request, v *visit, next caddyhttp.Handler, err error) error {
	if v.body != nil {
		context.AfterFunc(r.Context(), v.body.Free)
	}
	refused := refusalOf(v.queue, err)
	if !s.DryRun || !isFailure(refused.Reason) {
		return s.refuse(w, r, v, err)
	}
	s.meters.count(string(refused.Reason))
	s.logTicketless(v, refused.Reason, err)
	return next.ServeHTTP(w, r)
}
