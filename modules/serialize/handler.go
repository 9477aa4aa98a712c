package serialize

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Handler lets one request at a time through to the next handlers. The others wait in a
// queue and enter in order of arrival. Requests share a queue if they have the same lock
// directory and the same prefix. The queue spans sites, servers, configurations, reloads
// and processes.
//
// It is an ordinary handler: every serialize that a request comes to applies, one inside
// the other. After one with `off`, the request passes all that follow.
//
// The turn ends when the next handlers have returned; error routes come later. A refused
// request never reaches the next handlers.
//
// A reentrant request comes to the same queue again, in a nested block or by a rewrite. It
// passes while it holds a turn there, unless this handler is stricter. If it was refused
// there, it is refused again.
//
// Placeholder | Description
// ------------|---------------
// `{http.serialize.queue}` | The expanded prefix
// `{http.serialize.position}` | How many requests were ahead on arrival
// `{http.serialize.wait_ms}` | Milliseconds waited, three decimals
// `{http.serialize.token}` | The ticket's number, which grows with every entry of a queue; a fencing token for the upstream
// `{http.serialize.slot}` | Which of the `slots` the request has
// `{http.serialize.reason}` | On refusal: `timeout`, `queue_full`, `storage`, `lost`, `evicted`, `superseded`, `closed` or `visit_ended`
type Handler struct {
	// Lets the request pass this and every later serialize. Default: false.
	Off bool `json:"off,omitempty"`

	// The directory of the lock files, as an absolute path. A missing one is created.
	// Global placeholders are replaced when the configuration is loaded. Default: `queues`
	// in Caddy's data directory.
	Path string `json:"path,omitempty"`

	// Begins the names of the lock files, and so names the queue. May contain
	// placeholders: hosts count in any case, and credentials are hashed. Default:
	// `serializer_`.
	Prefix string `json:"prefix,omitempty"`

	// The request methods that pass without waiting. Default: none.
	SkipMethods []string `json:"skip_methods,omitempty"`

	// The longest wait, as a duration. 0 means to wait for ever. Default: 60s.
	Timeout *caddy.Duration `json:"timeout,omitempty"`

	// A text by which a request asks for a timeout of its own, with placeholders such as
	// `{http.request.header.X-Request-Timeout}`: a duration, or a number of seconds. If it
	// is absent, unreadable, not positive or larger, `timeout` counts. A `timeout` of 0
	// limits no request that asks. Default: none.
	TimeoutFrom string `json:"timeout_from,omitempty"`

	// How many requests may wait; one more is refused. 0 means no limit. Default: 0.
	QueueLength int `json:"queue_length,omitempty"`

	// Selects the request to refuse when `queue_length` requests already wait:
	// `drop_newest` the one that arrives, `drop_oldest` the one that has waited longest,
	// which needs a `queue_length` of at least 1. Default: `drop_newest`.
	WhenFull string `json:"when_full,omitempty"`

	// The HTTP status of a refusal, 400 to 599. 0 means the default. Default: 503.
	ErrorCode int `json:"error_code,omitempty"`

	// The body of a refusal. Default: none; the refusal is an error that goes to the
	// error routes.
	ErrorResponse *ErrorResponse `json:"error_response,omitempty"`

	// The number of requests that may be inside at a time. With `shared_methods`,
	// a value greater than 1 limits the readers; all other requests are alone inside.
	// 0 means the default. Default: 1.
	Concurrency int `json:"concurrency,omitempty"`

	// What each request inside has for itself, such as the address of a GPU: 1 to 64 distinct
	// names. As many requests are inside as there are slots. Global placeholders are replaced
	// when the configuration is loaded. Default: none.
	Slots []string `json:"slots,omitempty"`

	// The request methods of readers, which may be inside together. All other
	// requests are alone inside. Default: none.
	SharedMethods []string `json:"shared_methods,omitempty"`

	// The longest time inside, as a duration. A request that exceeds it is cancelled. 0
	// means no limit. Default: 0.
	HoldTimeout *caddy.Duration `json:"hold_timeout,omitempty"`

	// How long a turn lasts at least, as a duration. If its request leaves earlier, the turn
	// is held until then, and the answer is not delayed. So at most `concurrency` requests
	// enter within any such time. Not with `shared_methods`. Default: none.
	HoldAtLeast *caddy.Duration `json:"hold_at_least,omitempty"`

	// What happens to a request inside when its client disconnects. `finish`
	// lets it run to its end, `cancel` cancels it. Default: `finish`.
	OnDisconnect string `json:"on_disconnect,omitempty"`

	// How much of the request body is kept in memory, in bytes or as a text such as
	// `64KiB`. The body is read before the ticket is taken. A body that needs more than
	// `buffer` and `buffer_disk` is refused with 413. -1 means off: the next handlers read
	// the body while the request is inside. At most 1GiB. Default: `64KiB`.
	Buffer *directive.Size `json:"buffer,omitempty"`

	// How much of the request body beyond `buffer` is kept in an unnamed file in the
	// system's temporary directory. In bytes or as a text such as `64MiB`. 0 means to use
	// no file. At most 1TiB. Default: `256MiB`.
	BufferDisk *directive.Size `json:"buffer_disk,omitempty"`

	// How much of the response is kept until the turn is over, in bytes or as a text such
	// as `256KiB`. A response that grows beyond it, and one of a streaming kind, passes
	// inside the turn. 0 means off. At most 1GiB. Default: `256KiB`.
	ResponseBuffer *directive.Size `json:"response_buffer,omitempty"`

	// Lets every request enter at once, and counts and logs what it would have met in the
	// queue. Settings that delay, refuse or cancel requests have no effect. Default: false.
	DryRun bool `json:"dry_run,omitempty"`

	// The engine that keeps the queue, a module of the namespace
	// `http.serialize.engines`. Default: `file`.
	EngineRaw json.RawMessage `json:"engine,omitempty" caddy:"namespace=http.serialize.engines inline_key=engine"`

	// Answers waiting browsers with a page that shows and keeps their place in the queue.
	// Default: none; browsers wait with an open connection, as all other clients do.
	WaitingPage *WaitingPage `json:"waiting_page,omitempty"`

	// Makes a browser's turn a visit: all its requests pass by one turn, until it stays away.
	// Needs `waiting_page`. Not with `hold_at_least`, `hold_timeout` and `shared_methods`.
	// Default: none; each request has its own turn.
	Visit *Visit `json:"visit,omitempty"`

	// Sends comments to clients that wait for an event stream. Default: off.
	KeepAlive *KeepAlive `json:"keepalive,omitempty"`

	engine       *engines.Ref
	module       engines.Module
	prefix       *queuename.Prefix
	rule, shared serializer.Rule
	slots        func() []string // nil without slots
	ruleText     string          // the settings that say who may be inside together
	capacity     int             // how many may be inside; 0 is not known
	limit        int             // how many may be inside, readers or others; 0 is no limit
	site         string          // for people
	first        *sync.Once      // of warnOfRoot
	line         *waitingpage.Line
	report       *telemetry.Reporter
	ctx          caddy.Context
}

// ErrorResponse is the body of a refusal.
type ErrorResponse struct {
	// The value of the `Content-Type` header. Required.
	ContentType string `json:"content_type"`

	// The body. It is sent unchanged, without expanding placeholders. Required.
	Body string `json:"body"`
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.serialize", New: func() caddy.Module { return new(Handler) }}
}

// Provision applies the defaults, checks the settings and opens the engine, in this order.
// A rejected configuration leaves no directory and no metric behind: see Cleanup.
func (s *Handler) Provision(ctx caddy.Context) error {
	s.ctx = ctx
	if s.Off {
		return nil
	}
	if s.WaitingPage != nil && s.Timeout == nil {
		ctx.Logger().Warn("a line with waiting_page has no timeout: browsers that wait for longer than the default are refused; set timeout to how long they may wait, or to 0",
			zap.String("prefix", s.Prefix), zap.String("timeout", defaultTimeout))
	}
	err := s.fillIn()
	if err == nil {
		err = s.openEngine(ctx)
	}
	if err == nil {
		s.line, s.site, s.first = s.newLine(), siteOf(ctx), new(sync.Once)
		err = s.checkOtherLines()
	}
	if err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	registered.handlers.Store(s, true)
	sample()
	return nil
}

// openEngine opens the engine, and what counts and reports the requests.
func (s *Handler) openEngine(ctx caddy.Context) (err error) {
	if s.module, err = engines.Load(ctx, s, s.EngineRaw); err != nil {
		return err
	}
	load := engines.LoadingOf(ctx)
	if err := s.checkEngineChange(load); err != nil {
		return err
	}
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	turncontext.KeepConnections(ctx)
	if s.engine, err = load.Open(s.module, s.Path, ctx.Slogger()); err == nil {
		s.report, err = telemetry.NewReporter(ctx, registered.prefixOf(s.Prefix).Counters)
	}
	return err
}

// derive computes what follows from the settings.
func (s *Handler) derive() {
	s.prefix, _ = queuename.Parse(s.Prefix) // checkPrefix has done that
	s.rule, s.shared = s.engineRules()
	s.limit = s.rule.Capacity()
	s.ruleText, s.capacity = "concurrency "+strconv.Itoa(s.Concurrency), s.Concurrency
	if s.Slots != nil {
		s.ruleText, s.slots = s.slotsText(), s.slotsNow
	}
	if len(s.SharedMethods) > 0 {
		s.ruleText += ", shared_methods " + strings.Join(slices.Sorted(slices.Values(s.SharedMethods)), " ")
		s.capacity = 0 // writers are alone inside, and readers are not
		s.limit = s.shared.Capacity()
	}
	if s.HoldAtLeast != nil {
		s.ruleText += ", hold_at_least " + s.least().String()
	}
	if s.DryRun {
		s.ruleText += ", dry_run"
		s.openDoors()
	}
}

// engineRules are the engine's rules for most requests, and for those with shared methods.
func (s *Handler) engineRules() (rule, shared serializer.Rule) {
	if len(s.SharedMethods) == 0 {
		return serializer.Rule{Limit: s.Concurrency}, serializer.Rule{}
	}
	shared = serializer.Rule{Shared: true}
	if s.Concurrency > 1 {
		shared.Limit = s.Concurrency
	}
	return serializer.Rule{Limit: 1}, shared
}

// ruleOf is the engine's rule for requests of a method.
func (s *Handler) ruleOf(method string) serializer.Rule {
	if slices.Contains(s.SharedMethods, method) {
		return s.shared
	}
	return s.rule
}

// Cleanup releases the engine. Requests of this configuration keep it open until they are
// done, unless the process ends.
func (s *Handler) Cleanup() error {
	if s.engine == nil {
		return nil
	}
	registered.handlers.Delete(s)
	used := s.engine.End(func() {
		s.passConcurrency()
		s.passOpening()
		s.warnLeftOut()
	})
	if !used {
		registered.forgetPrefix(s.Prefix)
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
