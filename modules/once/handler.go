// Package once is the handler once: a request that comes twice with one idempotency key reaches
// the upstream once. A request's way is in serve.go, from top to bottom.
//
// The order comes from an engine, with a queue for each key. What became of a key is in Caddy's
// storage. So the first request stores that it has begun before it goes on: whatever happens
// then, no other one runs.
package once

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
)

func init() { caddy.RegisterModule(Handler{}) }

// Handler lets a request that comes twice with one idempotency key reach the next handlers once.
// The second one gets the first one's answer. The first one runs to its end even if its client
// has gone.
//
// If it is not known whether the upstream has acted, repetitions are refused with 409. Refusals
// are problem details (RFC 9457), with the reason in the field `Orderly-Once`.
//
// Placeholder | Description
// ------------|---------------
// `{http.once.key}` | The hash of the key, its host and its scope, as logs have it
// `{http.once.outcome}` | `first`, `repeated`, `freed`, `unknown`, or the reason of a refusal
type Handler struct {
	// The idempotency key, with placeholders. If it is empty, the request passes. Default:
	// `{http.request.header.Idempotency-Key}`.
	Key string `json:"key,omitempty"`

	// Whose keys these are, with placeholders such as `{http.auth.user.id}`. Keys of different
	// scopes never meet. `none` means that all clients share them. Required.
	Scope string `json:"scope,omitempty"`

	// Refuses requests without a key with 400. Default: false.
	Required bool `json:"required,omitempty"`

	// The request methods that have keys; others pass. Default: `POST` and `PATCH`.
	Methods []string `json:"methods,omitempty"`

	// How long an answer is repeated, as a duration from 1s to 7 days. It counts from the end of the
	// first request. Default: 24h.
	Keep *caddy.Duration `json:"keep,omitempty"`

	// How long a repetition waits for the first request, as a duration. 0 means not to wait.
	// Default: 30s.
	Timeout *caddy.Duration `json:"timeout,omitempty"`

	// The size of the largest answer that is repeated, in bytes or as a text such as `256KiB`. At
	// most 64MiB. Default: `256KiB`.
	MaxResponse *directive.Size `json:"max_response,omitempty"`

	// Fields of the answer that are repeated beside `Location`, `Content-*`, `ETag`,
	// `Last-Modified` and `Link`. `Set-Cookie` never is. Default: none.
	RepeatHeader []string `json:"repeat_header,omitempty"`

	// What must be the same beside method and address: `body`, or `none`. Default: `body`.
	Compare string `json:"compare,omitempty"`

	// Lets an answer of 500 and more free the key, so that the next request runs. Default: false;
	// it is repeated.
	FreeErrors bool `json:"free_errors,omitempty"`

	// How much of the request body is kept in memory, in bytes or as a text such as `64KiB`. The
	// body is always read first. At most 1GiB. Default: `64KiB`.
	Buffer *directive.Size `json:"buffer,omitempty"`

	// How much of the request body beyond `buffer` is kept in an unnamed file. In bytes or as a
	// text such as `64MiB`. At most 1TiB. Default: `256MiB`.
	BufferDisk *directive.Size `json:"buffer_disk,omitempty"`

	// The directory of the lock files that put repetitions in line, as an absolute path. Default:
	// `queues` in Caddy's data directory.
	Path string `json:"path,omitempty"`

	// The engine that puts repetitions in line, a module of the namespace
	// `http.serialize.engines`. Default: `file`.
	EngineRaw json.RawMessage `json:"engine,omitempty" caddy:"namespace=http.serialize.engines inline_key=engine"`

	engine   *engines.Ref
	records  *records
	log      *zap.Logger
	throttle *throttle.Throttle[string] // of log entries, by reason
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.once", New: func() caddy.Module { return new(Handler) }}
}

// Provision applies the defaults, checks the settings, and opens the engine and the records.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.log, h.throttle = ctx.Logger(), new(throttle.Throttle[string])
	turncontext.KeepConnections(ctx)
	err := errors.Join(h.fillIn(), registerMetrics(ctx.GetMetricsRegistry()))
	if err == nil {
		if h.Scope != scopeNone && !strings.Contains(h.Scope, "{") { // the braces may be missing
			h.log.Warn("the scope has no placeholder, so all clients share their keys; write one such as {http.auth.user.id}, or none")
		}
		h.records = &records{ctx.Storage(), h.log}
		engines.LoadingOf(ctx).Sweep.Do(func() { go h.records.sweepHourly(ctx) })
		err = h.openEngine(ctx)
	}
	if err != nil {
		return fmt.Errorf("once: %w", err)
	}
	return nil
}

// fillIn applies the defaults, and refuses settings that make no sense.
func (h *Handler) fillIn() (err error) {
	h.Path, err = engines.ExpandPath(h.Path)
	return errors.Join(err, settings.FillIn(h))
}

// openEngine opens the engine. One of a single machine is refused where several machines may share
// the records.
func (h *Handler) openEngine(ctx caddy.Context) error {
	module, err := engines.Load(ctx, h, h.EngineRaw)
	if err != nil {
		return err
	}
	files, inFiles := h.records.storage.(*certmagic.FileStorage)
	name := engines.NameOf(module)
	if !inFiles && (name == "file" || name == "memory") {
		return fmt.Errorf("engine %s: Caddy's storage is a %T, which several machines may share, but this engine is of one machine; "+
			"expected one of several machines, such as etcd, redis or postgres", name, h.records.storage)
	}
	if usual, _ := engines.ExpandPath(""); inFiles && files.Path != caddy.AppDataDir() && name == "file" && h.Path == usual {
		h.log.Warn("path is that of this Caddy alone; others that share its storage must line requests up in the same directory, or a key runs twice: set path",
			zap.String("path", h.Path), zap.String("storage", files.Path))
	}
	h.engine, err = engines.LoadingOf(ctx).Open(module, h.Path, ctx.Slogger())
	return err
}

// Cleanup releases the engine. Requests of this configuration keep it until they are done, unless
// the process ends.
func (h *Handler) Cleanup() error {
	if h.engine != nil {
		h.engine.End(func() {})
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
