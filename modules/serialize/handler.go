package serialize

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/configuration"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/connection"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/routes"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Handler lets one request at a time through to the next handler. The others wait
// in a queue and enter in order of arrival. Requests share a queue if they have the
// same lock directory and the same prefix. The queue spans sites, servers,
// configurations, reloads and processes.
//
// A refused request gets `error_code` (503 if the storage fails) with a
// `Retry-After` header, and either `error_response` or the error routes. It
// never reaches the next handler.
//
// A reentrant request comes to the same queue again, by a rewrite or in an error
// route. It passes while it holds a turn there. If it was refused there, it is
// refused again.
//
// Placeholder | Description
// ------------|---------------
// `{http.serialize.queue}` | The expanded prefix
// `{http.serialize.position}` | How many requests were ahead on arrival
// `{http.serialize.wait_ms}` | Milliseconds waited, three decimals
// `{http.serialize.token}` | The ticket's number, which grows with every entry of a queue; a fencing token for the upstream
// `{http.serialize.reason}` | On refusal: `timeout`, `queue_full`, `storage`, `lost`, `evicted` or `superseded`
type Handler struct {
	// Lets every request pass without a queue, so that a more specific route can
	// exempt its requests. Default: false.
	Off bool `json:"off,omitempty"`

	// The directory of the lock files, as an absolute path. A missing one is
	// created. Global placeholders are replaced when the configuration is loaded;
	// an unknown or empty one is an error. Empty means the default. Default: the
	// system's temporary directory.
	Path string `json:"path,omitempty"`

	// Begins the names of the lock files, and so names the queue. May contain
	// placeholders; whatever their values, lock files stay in the directory. Empty
	// means the default. Default: `serializer_`.
	Prefix string `json:"prefix,omitempty"`

	// The request methods that pass without waiting. Default: none.
	SkipMethods []string `json:"skip_methods,omitempty"`

	// The longest wait, as a duration. 0 means to wait for ever. Default: 60s.
	Timeout *caddy.Duration `json:"timeout,omitempty"`

	// The number of requests that may wait; one more is refused. 0 means no limit.
	// Default: 0.
	QueueLength int `json:"queue_length,omitempty"`

	// Selects the request to refuse when `queue_length` requests already wait:
	// `drop_newest` the one that arrives, `drop_oldest` the one that has waited
	// longest. The latter needs a `queue_length` of at least 1. Default:
	// `drop_newest`.
	WhenFull string `json:"when_full,omitempty"`

	// The HTTP status of a refusal, 400 to 599. 0 means the default. Default: 500.
	ErrorCode int `json:"error_code,omitempty"`

	// The body of a refusal. Default: none; the refusal is an error that goes to the
	// error routes.
	ErrorResponse *ErrorResponse `json:"error_response,omitempty"`

	// The number of requests that may be inside at a time. With `shared_methods`,
	// a value greater than 1 limits the readers; all other requests are alone inside.
	// 0 means the default. Default: 1.
	Concurrency int `json:"concurrency,omitempty"`

	// The request methods of readers, which may be inside together. All other
	// requests are alone inside. Default: none.
	SharedMethods []string `json:"shared_methods,omitempty"`

	// The longest time inside, as a duration. A request that exceeds it is
	// cancelled, and the next one enters when its handler has returned. 0 means no
	// limit. Default: 0.
	HoldTimeout caddy.Duration `json:"hold_timeout,omitempty"`

	// What happens to a request inside when its client disconnects. `finish`
	// lets it run to its end, `cancel` cancels it. Default: `finish`.
	OnDisconnect string `json:"on_disconnect,omitempty"`

	// The part of the request body that is read into memory before the ticket
	// is taken, in bytes or as a text such as `64KiB`. 0 means to read nothing
	// ahead, whatever `buffer_disk` is. At most 1GiB. Default: `64KiB`.
	Buffer *Size `json:"buffer,omitempty"`

	// The part of the body beyond `buffer` that is read into an unnamed file in the
	// system's temporary directory. In bytes or as a text such as `64MiB`. The next
	// handler reads the rest while the request is inside. 0 means to use no file.
	// At most 1TiB. Default: `64MiB`.
	BufferDisk *Size `json:"buffer_disk,omitempty"`

	// The part of the response that is taken from the next handlers at once, in
	// bytes or as a text such as `256KiB`. The turn ends while up to that many bytes
	// are still unread by the client. 0 means off: the turn lasts until the response
	// is written to the client. At most 1GiB. Default: `256KiB`.
	ResponseBuffer *Size `json:"response_buffer,omitempty"`

	// Lets every request enter at once, and counts and logs what it would have met
	// in the queue: `would_enter` or `would_wait`. `queue_length`, `hold_timeout`,
	// `on_disconnect`, `buffer`, `buffer_disk` and `waiting_page` have no effect
	// then; `timeout` only limits the wait for a pause or for another process. All
	// handlers of a queue must agree. Default: false.
	DryRun bool `json:"dry_run,omitempty"`

	// The engine that keeps the queue, a module of the namespace
	// `http.serialize.engines`. Default: `file`.
	EngineRaw json.RawMessage `json:"engine,omitempty" caddy:"namespace=http.serialize.engines inline_key=engine"`

	// Answers waiting browsers with a page that shows their place in the queue, and
	// keeps the place as long as the page reloads. Default: none; browsers wait with
	// an open connection, as all other clients do.
	WaitingPage *WaitingPage `json:"waiting_page,omitempty"`

	engine       *engineRef
	module       EngineModule
	placeholders bool   // the prefix has some
	queue        string // the queue's name, if the prefix has no placeholders
	rule, shared serializer.Rule
	rules        *configuration.Rules
	group        string                                // of the handler's route
	errorRoutes  bool                                  // all error routes of the server run inside the turn
	refusals     *throttle.Throttle[serializer.Reason] // of log entries
	meters       *meters
	closeStats   func()
	leaveConfig  func()           // nil until the handler has joined its configuration
	events       *caddyevents.App // may be nil
	ctx          caddy.Context
	logger       *zap.Logger
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
	return caddy.ModuleInfo{
		ID:  "http.handlers.serialize",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision applies the defaults, checks the settings and opens the engine, in this
// order. A rejected configuration must leave no directory and no metric behind.
func (s *Handler) Provision(ctx caddy.Context) error {
	s.ctx, s.logger, s.group = ctx, ctx.Logger(), routes.Group(ctx)
	if s.Off {
		return nil
	}
	if err := s.normalize(); err != nil {
		return err
	}
	if s.WaitingPage != nil {
		if err := s.WaitingPage.provision(ctx); err != nil {
			return fmt.Errorf("serialize: waiting_page: %w", err)
		}
	}
	var err error
	if s.module, err = s.loadEngine(ctx); err != nil {
		return err
	}
	if s.events, err = eventsOf(ctx); err != nil {
		return err
	}
	if err := s.joinConfiguration(ctx); err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	if err := routes.CheckNamed(ctx); err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	if err := s.openMeters(ctx); err != nil {
		return err
	}
	if err := s.checkEngineChange(ctx); err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	s.refusals = new(throttle.Throttle[serializer.Reason])
	if s.engine, err = openEngine(s.module, s.Path, ctx.Slogger()); err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	s.engine.configure(s.configured(), 1)
	s.errorRoutes = routes.HoldErrors(ctx, newErrorRoutes)
	s.closeStats = openStats(s.Prefix, prefixUse{realPath(s.Path), s.configured().limit, s.QueueLength, s.DryRun, time.Duration(*s.Timeout)}, s.meters)
	connection.Register(ctx)
	return nil
}

// Validate implements [caddy.Validator].
func (s *Handler) Validate() error {
	if s.Off {
		return nil
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	return nil
}

// ServeHTTP waits for the request's turn, serves it, and hands the turn over.
func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer routes.Reopen(r.Context(), s.group)
	if s.Off {
		return next.ServeHTTP(w, r)
	}
	if slices.Contains(s.SkipMethods, r.Method) {
		s.meters.count(outcomeSkipped)
		return next.ServeHTTP(w, r)
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	v := s.newVisit(r, repl, vars)
	if earlier := v.earlierOrRegister(vars); earlier != nil {
		return earlier.serveReentrant(s, w, r, next)
	}
	v.setPlaceholders(repl, vars)
	if err := s.readBody(w, r, v); err != nil {
		return s.refuse(w, r, v, err)
	}
	if s.WaitingPage != nil && !s.DryRun && v.isNavigation(r) {
		return s.serveNavigation(w, r, v, next)
	}
	v.uploading = isUploading(r)
	var err error
	if v.engine, err = s.acquireEngine(); err != nil {
		return s.turnAway(w, r, v, next, err)
	}
	v.openHold(r)
	if err := v.enter(w, r); err != nil {
		v.close()
		return s.turnAway(w, r, v, next, err)
	}
	return v.serve(w, r, next)
}

// queueName is the name of the request's queue.
func (s *Handler) queueName(repl *caddy.Replacer) string {
	if !s.placeholders {
		return s.queue
	}
	return serializer.QueueName(repl.ReplaceAll(s.Prefix, ""))
}

// Cleanup releases the engine. Requests of this configuration keep it open until
// they are done, unless the process ends.
func (s *Handler) Cleanup() error {
	if s.leaveConfig != nil {
		s.leaveConfig()
	}
	if s.engine == nil {
		return nil
	}
	s.engine.configure(s.configured(), -1)
	s.closeStats()
	if caddy.Exiting() {
		if err := s.engine.Close(); err != nil {
			return fmt.Errorf("closing engine: %w", err)
		}
	}
	return s.engine.release()
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
