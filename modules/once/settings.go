package once

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
)

const (
	defaultKey  = "{http.request.header.Idempotency-Key}"
	scopeNone   = "none"
	compareBody = "body"
	maxKeep     = 7 * day
	maxResponse = 64 << 20
)

// settings are in the order of the documents.
var settings = directive.Settings[*Handler]{
	directive.TextSetting("key", "<text>", defaultKey, "a text with a placeholder, such as {http.request.uri.query.key}",
		func(h *Handler) *string { return &h.Key }, (*Handler).checkKey),
	scope(),
	directive.FlagSetting("required", func(h *Handler) *bool { return &h.Required }),
	directive.MethodsSetting("methods", func(h *Handler) *[]string { return &h.Methods }, http.MethodPost, http.MethodPatch),
	keepTime(),
	directive.DurationSetting("timeout", "30s", 0, func(h *Handler) **caddy.Duration { return &h.Timeout }),
	directive.SizeSetting("max_response", "256KiB", 1, maxResponse, "from 1 to 64MiB, such as 256KiB",
		func(h *Handler) **directive.Size { return &h.MaxResponse }),
	{
		Name: "repeat_header", Syntax: "<field...>", Usual: "none",
		Parse: func(h *Handler, d *caddyfile.Dispenser) error {
			if h.RepeatHeader = d.RemainingArgs(); len(h.RepeatHeader) == 0 {
				return d.Err("repeat_header: no value; expected names of fields, such as X-Order-Id")
			}
			return nil
		},
		Check: (*Handler).checkFields,
	},
	directive.ChoiceSetting("compare", func(h *Handler) *string { return &h.Compare }, compareBody, "none"),
	directive.FlagSetting("free_errors", func(h *Handler) *bool { return &h.FreeErrors }),
	directive.BufferSetting(0, func(h *Handler) **directive.Size { return &h.Buffer }, func(h *Handler) **directive.Size { return &h.BufferDisk }),
	engines.PathSetting(func(h *Handler) *string { return &h.Path }),
	engines.EngineSetting(func(h *Handler) *json.RawMessage { return &h.EngineRaw }),
}

// scope has no default: whose keys these are must be written.
func scope() directive.Setting[*Handler] {
	s := directive.TextSetting("scope", "<text>|none", "", "whose keys these are, such as {http.auth.user.id}, or none",
		func(h *Handler) *string { return &h.Scope }, (*Handler).checkScope)
	s.Usual = "required"
	return s
}

func (h *Handler) checkKey() error {
	if !strings.Contains(h.Key, "{") {
		return fmt.Errorf("key %q: expected a text with a placeholder, such as %s; all requests would have one key", h.Key, defaultKey)
	}
	return nil
}

func (h *Handler) checkScope() error {
	if h.Scope == "" {
		return errors.New("scope: missing; expected whose keys these are, such as {http.auth.user.id}, or none if all clients may share them")
	}
	return nil
}

// keepTime is a setting with a longest duration, too: records are removed then.
func keepTime() directive.Setting[*Handler] {
	s := directive.DurationSetting("keep", "24h", time.Second, func(h *Handler) **caddy.Duration { return &h.Keep })
	checkLeast := s.Check
	s.Check = func(h *Handler) error {
		if kept := time.Duration(*h.Keep); kept > maxKeep {
			return fmt.Errorf("keep %s: expected a duration of at most 7d, such as 24h", kept)
		}
		return checkLeast(h)
	}
	return s
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens: the settings, in a block. A repeated
// one overrides the earlier one.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := settings.ParseBlock(d, "once", h); err != nil {
		return err
	}
	return directive.In(d, h.checkScope())
}

func (h *Handler) checkFields() error {
	for _, name := range h.RepeatHeader {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("repeat_header: %q is not the name of a field; expected one such as X-Order-Id", name)
		}
	}
	return nil
}

// warn logs what may be a mistake in the settings. Without the braces of a placeholder in the scope,
// all clients get each other's answers.
func (h *Handler) warn() {
	if h.Scope != scopeNone && !strings.Contains(h.Scope, "{") {
		h.log.Warn("the scope has no placeholder, so all clients share their keys; write one such as {http.auth.user.id}, or none")
	}
}

// repeats reports whether a field of the answer is repeated. A cookie would give one client the session
// of another.
func (h *Handler) repeats(name string) bool {
	always := []string{"Location", "Etag", "Last-Modified", "Link"}
	isNamed := func(field string) bool { return strings.EqualFold(field, name) }
	return name != "Set-Cookie" && (strings.HasPrefix(name, "Content-") || slices.Contains(always, name) || slices.ContainsFunc(h.RepeatHeader, isNamed))
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
