package serialize

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/uniqueids"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// visit is one request's way through a queue.
type visit struct {
	handler *Handler
	engine  *engineRef
	space   string // where the engine keeps its queues
	queue   string
	traced  bool
	txid    string // of the request, if it has one; for logs, and made when there is something to log

	host     string                // of the request; see Request
	clientIP string                // of the request
	ids      *uniqueids.RequestIDs // of the request; nil where unique_ids does not name it

	ctx    context.Context // of the stay inside
	cancel context.CancelCauseFunc

	failure *caddyhttp.HandlerError // why it never had a turn; else nil
	refused bool                    // by the queue; then there is a failure, too

	turn    serializer.Turn
	local   localTurn
	age     ageEntry // in the list of those that wait, then of those inside
	waited  time.Duration
	entered time.Time
	ended   atomic.Bool
	body    *heldBody   // where part of it is in a file, or still to come
	writer  turnWriter  // of the handlers behind
	timer   *time.Timer // of hold_timeout

	uploading bool // the client may still send of the body

	mu      sync.Mutex  // of what follows
	uses    int         // of the turn; it ends with the last one
	kept    bool        // one use is left to the error routes
	keeps   int         // how often it was
	givenUp bool        // they did not come
	revoked bool        // the turn
	current *turnWriter // of the handlers that are at work now, or nil

	next *visit // of the same request
}

// enter waits for the turn.
func (v *visit) enter(w http.ResponseWriter, r *http.Request) error {
	s := v.handler
	rule := s.rule
	if slices.Contains(s.SharedMethods, r.Method) {
		rule = s.shared
	}
	clocks := stopDeadlines(w, r, time.Duration(*s.Timeout))
	watch := watchClient(r)
	span := v.startWait(r.Context())
	arrived := time.Now()
	s.meters.startWait(v, arrived)
	turn, err := v.takeTurn(r.Context(), serializer.Arrival{
		Queue:      v.queue,
		Client:     clientOf(r),
		Rule:       rule,
		MaxWaiting: s.QueueLength,
		Timeout:    time.Duration(*s.Timeout),
		Requester:  v,
		Revoke:     v.revoke,
	})
	v.entered = time.Now()
	v.waited = v.entered.Sub(arrived)
	watch.unwatch()
	s.meters.endWait(v)
	clocks.restart(v.waited)
	v.turn = turn
	v.endWait(span, err)
	return err
}

// Request implements [serializer.Requester]: it tells what the ticket is for.
func (v *visit) Request() serializer.Request { return v.describeRequest(v.ctx) }

// describeRequest tells what the request is, given its context. It may run beside
// the request, so it uses only what the request does not change.
func (v *visit) describeRequest(ctx context.Context) serializer.Request {
	described := serializer.Request{Host: v.host, ClientIP: v.clientIP}
	if original, ok := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		described.Method, described.Path = original.Method, original.URL.Path
	}
	if v.ids != nil {
		described.TXID = v.ids.TXID()
	}
	return described
}

// openHold prepares the context of the stay inside. By default it outlives the
// client: a PHP script does not stop when its client does, and until it has,
// the next request must not enter.
func (v *visit) openHold(r *http.Request) {
	parent := r.Context()
	if v.handler.OnDisconnect == onDisconnectFinish {
		parent = context.WithoutCancel(parent)
	}
	v.ctx, v.cancel = context.WithCancelCause(parent)
	if outer := v.around(); outer != nil {
		// What cuts short the stay around this one, cuts this one short.
		context.AfterFunc(outer.ctx, func() {
			if short, ok := errors.AsType[revocation](context.Cause(outer.ctx)); ok {
				v.revoke(short.error)
			}
		})
	}
}

// around is the request's visit to another queue that it is inside now.
func (v *visit) around() *visit {
	for outer := v.next; outer != nil; outer = outer.next {
		if outer.turn != nil && !outer.ended.Load() {
			return outer
		}
	}
	return nil
}

// revocation is the cause of a stay that was ended by its queue, not by its
// client. To the handlers behind it is a cancelled request like any other:
// reverse_proxy would else count it as a failure of the upstream, and try again
// while the turn is held.
type revocation struct{ error }

// Is makes it a cancellation.
func (revocation) Is(target error) bool { return target == context.Canceled }

// Unwrap returns why the queue ended the stay.
func (r revocation) Unwrap() error { return r.error }

func isRevocation(cause error) bool {
	_, ok := errors.AsType[revocation](cause)
	return ok
}

// serve runs what is behind, and hands the turn on when it has returned.
func (v *visit) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	s := v.handler
	s.meters.startHold(v)
	v.tell(r.Context())
	v.uses = 1
	if hold := time.Duration(s.HoldTimeout); hold > 0 {
		v.timer = time.AfterFunc(hold, func() { v.revoke(errHoldTimeout) })
	}
	defer func() {
		if isRevocation(context.Cause(v.ctx)) {
			v.txid = uniqueids.TXID(r.Context()) // for the log, while this goroutine serves the request
		}
		if err == nil || r.Context().Done() == nil {
			v.release()
			return
		}
		v.keep(r.Context())
		if !s.errorRoutes {
			*r = *r.WithContext(v.ctx) // error routes that nobody holds are at least cancelled with the turn
		}
	}()
	v.initWriter(&v.writer, w, r)
	return v.run(v.ctx, &v.writer, r, next)
}

// tell lets the log know of the entry.
func (v *visit) tell(ctx context.Context) {
	if c := v.handler.logger.Check(zap.DebugLevel, "entered"); c != nil {
		v.txid = uniqueids.TXID(ctx)
		c.Write(append(v.fields(), zap.Int("position", v.turn.Position()), zap.Duration("wait", v.waited))...)
	}
}

func (v *visit) fields() []zap.Field {
	fields := []zap.Field{zap.String("queue", v.queue), zap.String("token", v.token())}
	if v.txid != "" {
		fields = append(fields, zap.String("txid", v.txid))
	}
	return fields
}

func (v *visit) token() string { return strconv.FormatUint(v.turn.Token(), 10) }

// explain names the cause of an error where the stay was cut short.
func (v *visit) explain(w *turnWriter, err error) error {
	if err == nil && !w.unanswered.Load() {
		return nil
	}
	short, ok := errors.AsType[revocation](context.Cause(v.ctx))
	switch {
	case !ok:
		return err
	case errors.Is(short, errHoldTimeout):
		return caddyhttp.Error(http.StatusGatewayTimeout, short.error)
	}
	return caddyhttp.Error(http.StatusServiceUnavailable, short.error)
}

// leave ends the visit.
func (v *visit) leave() {
	if v.ended.Swap(true) {
		return
	}
	s := v.handler
	held := time.Since(v.entered)
	cause := context.Cause(v.ctx)
	if v.timer != nil {
		v.timer.Stop()
	}
	v.turn.Leave()
	v.close()
	v.body.free()
	s.meters.endHold(v, held)
	s.meters.count(outcomeInside(cause))
	v.logLeave(held, cause)
}

func (v *visit) logLeave(held time.Duration, cause error) {
	level, message := zap.DebugLevel, "left"
	if isRevocation(cause) {
		level, message = zap.WarnLevel, "left after its turn was revoked"
	}
	if c := v.handler.logger.Check(level, message); c != nil {
		c.Write(append(v.fields(), zap.Duration("hold", held), zap.NamedError("cause", cause))...)
	}
}

// close frees what a visit holds besides its turn.
func (v *visit) close() {
	v.cancel(nil)
	v.handler.giveBack(v.engine)
}

// describe sets the placeholders of a request that comes to a queue. Later
// visits to other queues are in vars, too.
func (v *visit) describe(repl *caddy.Replacer, vars map[string]any) {
	if v.next != nil {
		return // the first one has
	}
	repl.Map(func(key string) (any, bool) {
		if !strings.HasPrefix(key, "http.serialize.") {
			return nil, false
		}
		return vars[visitsVar].(*visit).innermost().placeholder(key)
	})
}

// innermost is the request's youngest visit that has not ended, or else the
// youngest, which v is.
func (v *visit) innermost() *visit {
	for inner := v; inner != nil; inner = inner.next {
		if !inner.ended.Load() {
			return inner
		}
	}
	return v
}

func (v *visit) placeholder(key string) (any, bool) {
	if key == "http.serialize.queue" {
		return v.queue, true
	}
	if key == "http.serialize.reason" {
		return "", true // until it is refused
	}
	if v.turn == nil {
		return nil, false
	}
	switch key {
	case "http.serialize.position":
		return v.turn.Position(), true
	case "http.serialize.wait_ms":
		return newWaitMS(v.waited), true
	case "http.serialize.token":
		return v.token(), true
	}
	return nil, false
}

// clientOf is the address of the connection's peer.
func clientOf(r *http.Request) netip.AddrPort {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.AddrPort{} // not over IP
	}
	return addr
}

// Interface guards
var _ serializer.Requester = (*visit)(nil)
