package serialize

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/body"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Reasons of log entries that are not reasons of a refusal by the queue.
const (
	reasonBody     = "body"
	reasonStricter = "stricter"
)

// throttled returns a log entry that is written at most once a second for each reason,
// and the number of requests that it stands for. It returns nil if no entry is due.
func (s *Handler) throttled(reason serializer.Reason, level zapcore.Level, message string) (*zapcore.CheckedEntry, zap.Field) {
	count, ok := s.throttle.Allow(reason)
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
	if cause != nil {
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

func (s *Handler) logRefusal(v *visit, refused *serializer.Refused) {
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
		)
	}
}

// logBody logs why a request's body could not be read, if an option helps.
func (s *Handler) logBody(v *visit, err error) {
	if !errors.Is(err, body.ErrTooLarge) {
		return
	}
	if c, count := s.throttled(reasonBody, zap.WarnLevel, "refused: the request body is larger than `buffer` allows; raise it, or stream bodies with `buffer off`"); c != nil {
		c.Write(zap.String("queue", v.queue), count, zap.Error(err), v.txidField())
	}
}

// logStricter logs a request that is inside, and comes to a stricter line of its queue.
func (s *Handler) logStricter(held, v *visit) {
	if c, count := s.throttled(reasonStricter, zap.ErrorLevel, "refused: the request is inside by a line that is less strict than this one of the same queue"); c != nil {
		c.Write(zap.String("queue", v.queue), zap.String("inside_by", held.handler.ruleText()), zap.String("comes_to", s.ruleText()), count, v.txidField())
	}
}

// ruleText is the settings of a line that say who may be inside together.
func (s *Handler) ruleText() string {
	text := "concurrency " + strconv.Itoa(s.Concurrency)
	if len(s.SharedMethods) > 0 {
		text += ", shared_methods " + strings.Join(s.SharedMethods, " ")
	}
	if s.DryRun {
		text += ", dry_run"
	}
	return text
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

	// insidePatience is how long a request may wait until its engine has listed who is
	// inside. It happens once a second at most.
	insidePatience = 100 * time.Millisecond
)

// inside describes the requests ahead of this one, of all processes. It says nothing
// if the engine cannot tell.
func (v *visit) inside(ctx context.Context) (inside []string) {
	ctx, cancel := context.WithTimeout(ctx, insidePatience)
	defer cancel()
	queues, err := v.engine.describedQueues(ctx)
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
			inside = append(inside, command.Printable(queueapi.Describe(t)))
		}
	}
	return inside
}
