package serialize

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/connection"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// throttled returns a log entry that is written at most once a second for each reason,
// and the number of requests that it stands for. It returns nil if no entry is due.
func (s *Handler) throttled(reason serializer.Reason, level zapcore.Level, message string) (*zapcore.CheckedEntry, zap.Field) {
	count, ok := s.refusals.Allow(reason)
	if !ok {
		return nil, zap.Skip()
	}
	return s.logger.Check(level, message), zap.Int("count", count)
}

// txidField names the request in a log entry. It makes the txid, so only an entry
// that is written may have it.
func (v *visit) txidField() zap.Field {
	if v.id == nil {
		return zap.Skip()
	}
	return zap.String("txid", v.id.TXID())
}

func (v *visit) logEntered() {
	if c := v.handler.logger.Check(zap.DebugLevel, "entered"); c != nil {
		c.Write(
			zap.String("queue", v.queue),
			zap.String("token", v.token()),
			v.txidField(),
			zap.Int("position", v.turn.Position()),
			zap.Duration("wait", v.waited),
		)
	}
}

func (v *visit) logLeft(held time.Duration, cause error) {
	level, message := zap.DebugLevel, "left"
	if response.IsRevocation(cause) {
		level, message = zap.WarnLevel, "left after its turn was revoked"
	}
	if c := v.handler.logger.Check(level, message); c != nil {
		c.Write(
			zap.String("queue", v.queue),
			zap.String("token", v.token()),
			v.txidField(),
			zap.Duration("hold", held),
			zap.NamedError("cause", cause),
		)
	}
}

func (s *Handler) logRefusal(r *http.Request, v *visit, refused *serializer.Refused) {
	level := zap.WarnLevel
	switch refused.Reason {
	case serializer.ReasonStorage:
		level = zap.ErrorLevel
	case serializer.ReasonSuperseded:
		level = zap.InfoLevel
	}
	if c, count := s.throttled(refused.Reason, level, "refused"); c != nil {
		c.Write(
			zap.String("queue", v.queue),
			zap.String("reason", string(refused.Reason)),
			zap.Int("position", refused.Position),
			zap.Duration("wait", v.waited),
			count,
			zap.Error(refused.Err),
			v.txidField(),
			selfWaitHint(r, refused),
		)
	}
}

// selfWaitHint names the likely cause of a timeout if this server has made the
// request itself.
func selfWaitHint(r *http.Request, refused *serializer.Refused) zap.Field {
	if refused.Reason != serializer.ReasonTimeout || !connection.CameFromHere(r) {
		return zap.Skip()
	}
	return zap.String("hint", "this server made the request itself: perhaps a request that is inside waits for this one, "+
		"by httpInclude of a template or by a proxy to this server")
}

// logTicketless logs a request of a dry run that passes without a ticket.
func (s *Handler) logTicketless(v *visit, reason serializer.Reason, err error) {
	if c, count := s.throttled(reason, zap.ErrorLevel, "dry run: passed without a ticket; a queue would have refused it"); c != nil {
		c.Write(zap.String("queue", v.queue), zap.String("reason", string(reason)), count, zap.Error(err), v.txidField())
	}
}

// logWouldWait logs a request of a dry run that would have waited behind ahead others.
func (s *Handler) logWouldWait(r *http.Request, v *visit, ahead int) {
	if c, count := s.throttled(outcomeWouldWait, zap.InfoLevel, "dry run: would have waited"); c != nil {
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
			count,
			v.txidField(),
		)
	}
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
	text := queueapi.RequestOf(t)
	if t.Request != nil && t.Request.TXID != "" {
		text += ", txid " + queueapi.TXIDText(t.Request)
	}
	return text + ", " + command.Printable(t.Owner)
}
