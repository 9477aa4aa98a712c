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
	{
		Name: "scope", Syntax: "<text>|none", Usual: "required", Check: (*Handler).checkScope,
		Parse: func(h *Handler, d *caddyfile.Dispenser) (err error) {
			h.Scope, err = directive.Value(d, "whose keys these are, such as {http.auth.user.id}, or none")
			return err
		},
	},
	directive.FlagSetting("required", func(h *Handler) *bool { return &h.Required }),
	directive.MethodsSetting("methods", func(h *Handler) *[]string { return &h.Methods }, http.MethodPost, http.MethodPatch),
	directive.DurationSetting("keep", "24h", time.Second, maxKeep, func(h *Handler) **caddy.Duration { return &h.Keep }), // records are removed then
	directive.DurationSetting("timeout", "30s", 0, directive.Longest, func(h *Handler) **caddy.Duration { return &h.Timeout }),
	directive.SizeSetting("max_response", "256KiB", 1, maxResponse, "from 1 to 64MiB, such as 256KiB",
		func(h *Handler) **directive.Size { return &h.MaxResponse }),
	directive.ListSetting("repeat_header", "<field...>", "names of fields, such as X-Order-Id",
		func(h *Handler) *[]string { return &h.RepeatHeader }, (*Handler).checkFields),
	directive.ChoiceSetting("compare", func(h *Handler) *string { return &h.Compare }, compareBody, "none"),
	directive.FlagSetting("free_errors", func(h *Handler) *bool { return &h.FreeErrors }),
	directive.BufferSetting(0, func(h *Handler) **directive.Size { return &h.Buffer }, func(h *Handler) **directive.Size { return &h.BufferDisk }),
	engines.PathSetting(func(h *Handler) *string { return &h.Path }),
	engines.EngineSetting(func(h *Handler) *json.RawMessage { return &h.EngineRaw }),
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

// repeats reports whether a field of the answer is repeated. A cookie would give one client the session
// of another.
func (h *Handler) repeats(name string) bool {
	always := []string{"Location", "Etag", "Last-Modified", "Link"}
	isNamed := func(field string) bool { return strings.EqualFold(field, name) }
	return name != "Set-Cookie" && (strings.HasPrefix(name, "Content-") || slices.Contains(always, name) || slices.ContainsFunc(h.RepeatHeader, isNamed))
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
