package serialize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/command"
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

// observe notes what a request has met in a dry run.
func (v *visit) observe(r *http.Request) {
	s := v.handler
	ahead := v.turn.Position()
	s.meters.atOnce.Observe(float64(ahead + 1))
	v.met = outcomeWouldEnter
	if s.wouldWait(v, ahead) {
		v.met = outcomeWouldWait
		s.logWouldWait(r, v, ahead)
	}
}

// wouldWait reports whether a request would have waited, with this many ahead of it. Which
// requests of other processes are readers is not known, so a reader waits for them.
func (s *Handler) wouldWait(v *visit, ahead int) bool {
	if !v.age.reader {
		rule, _ := rules(s.Concurrency, len(s.SharedMethods) > 0)
		return ahead >= rule.Capacity()
	}
	_, rule := rules(s.Concurrency, true)
	limit := cmp.Or(rule.Capacity(), ahead+1)
	return ahead >= limit || ahead > s.meters.stats.inside.readers(v.queue)
}

// outcome is what becomes of a request that was inside. cause says why its hold
// ended early, if it did.
func (v *visit) outcome(cause error) string {
	outcome := outcomeInside(cause)
	if outcome == outcomeEntered && v.met != "" {
		return v.met
	}
	return outcome
}

// revokeDry revokes the turn of a request in a dry run only if somebody evicts it.
func (v *visit) revokeDry(cause error) {
	if errors.Is(cause, serializer.ErrEvicted) {
		v.revoke(cause)
	}
}

// turnAway refuses a request that has no turn. In a dry run, it serves a request that
// has none because the storage fails.
func (s *Handler) turnAway(w http.ResponseWriter, r *http.Request, v *visit, next caddyhttp.Handler, err error) error {
	v.body.freeWith(r.Context())
	if !s.DryRun {
		return s.refuse(w, r, v, err)
	}
	reason := serializer.ReasonStorage
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		reason = refused.Reason
	}
	if reason != serializer.ReasonStorage && reason != serializer.ReasonLost {
		return s.refuse(w, r, v, err)
	}
	s.meters.count(string(reason))
	s.logTicketless(v, reason, err)
	return next.ServeHTTP(w, r)
}

// logTicketless logs requests that pass without a ticket, at most once a second for
// each reason.
func (s *Handler) logTicketless(v *visit, reason serializer.Reason, err error) {
	count, ok := s.refusals.Allow(reason)
	if !ok {
		return
	}
	if c := s.logger.Check(zap.ErrorLevel, "dry run: passed without a ticket; a queue would have refused it"); c != nil {
		c.Write(zap.String("queue", v.queue), zap.String("reason", string(reason)), zap.Int("count", count), zap.Error(err), v.txidField())
	}
}

// wouldWait is the key of the throttle of log entries.
const wouldWait serializer.Reason = outcomeWouldWait

// logWouldWait logs requests that would have waited, at most one a second.
func (s *Handler) logWouldWait(r *http.Request, v *visit, ahead int) {
	count, ok := s.refusals.Allow(wouldWait)
	if !ok {
		return
	}
	c := s.logger.Check(zap.InfoLevel, "dry run: would have waited")
	if c == nil {
		return
	}
	request := v.describeRequest(r.Context())
	c.Write(
		zap.String("queue", v.queue),
		zap.String("token", v.token()),
		zap.String("method", request.Method),
		zap.String("host", request.Host),
		zap.String("path", request.Path),
		zap.String("client_ip", request.ClientIP),
		zap.Int("position", ahead),
		zap.Strings("inside", v.inside(r.Context())),
		zap.Int("count", count),
		v.txidField(),
	)
}

const (
	// maxInsideLogged is how many requests a log entry names as inside.
	maxInsideLogged = 10

	// listPatience is how long a request may wait until its engine has listed
	// who is inside. It happens once a second at most.
	listPatience = 100 * time.Millisecond
)

// inside describes the requests ahead of this one, of all processes. It says nothing
// if the engine cannot tell.
func (v *visit) inside(ctx context.Context) (inside []string) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	queues, err := v.engine.Queues(ctx)
	if err != nil {
		return nil
	}
	for _, q := range queues {
		if q.Prefix != v.queue {
			continue
		}
		for _, t := range q.Tickets {
			if t.Token == v.token() || len(inside) == maxInsideLogged {
				break
			}
			inside = append(inside, insideText(t))
		}
	}
	return inside
}

// insideText describes a ticket in a log entry. Of a request of another process, only
// the peer of its connection is known.
func insideText(t serializer.TicketState) string {
	text := whoseText(t)
	if t.Request != nil && t.Request.TXID != "" {
		text += ", txid " + txidText(t.Request)
	}
	return text + ", " + command.Printable(t.Owner)
}

// DryRunText sums up a dry run.
func (q *statusQueue) DryRunText() string {
	waiting := q.Outcomes[outcomeWouldWait]
	all := waiting + q.Outcomes[outcomeWouldEnter]
	return fmt.Sprintf("Dry run: nobody waits. %s of %s would have waited.", countText(waiting), counted(int(all), "request", "requests"))
}
