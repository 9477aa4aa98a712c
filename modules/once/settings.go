package once

import (
	"cmp"
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
	defaultKey     = "{http.request.header.Idempotency-Key}"
	defaultKeep    = caddy.Duration(24 * time.Hour)
	defaultTimeout = caddy.Duration(30 * time.Second)

	scopeNone   = "none"
	compareBody = "body"
	compareNone = "none"

	maxResponse = 64 << 20
	maxBuffer   = 1 << 30
)

// subdirectives are in the order of the documents.
var subdirectives = directive.Table[*Handler]{
	text("key", "a text with a placeholder, such as {http.request.uri.query.key}", func(h *Handler) *string { return &h.Key }, checkKey),
	text("scope", "whose keys these are, such as {http.auth.user.id}, or none", func(h *Handler) *string { return &h.Scope }, checkScope),
	flag("required", func(h *Handler) *bool { return &h.Required }),
	directive.On("methods", func(h *Handler, d *caddyfile.Dispenser) (err error) {
		if h.Methods, err = directive.Methods(d); err != nil {
			return err
		}
		return directive.In(d, checkMethods(h.Methods))
	}),
	duration("keep", func(h *Handler) **caddy.Duration { return &h.Keep }, checkKeep),
	duration("timeout", func(h *Handler) **caddy.Duration { return &h.Timeout }, checkTimeout),
	directive.On("max_response", func(h *Handler, d *caddyfile.Dispenser) error {
		if err := directive.Sizes(d, "a size such as 256KiB", &h.MaxResponse); err != nil {
			return err
		}
		return directive.In(d, checkMaxResponse(h.MaxResponse))
	}),
	directive.On("repeat_header", func(h *Handler, d *caddyfile.Dispenser) error {
		if h.RepeatHeader = d.RemainingArgs(); len(h.RepeatHeader) == 0 {
			return d.Err("repeat_header: no value; expected names of fields, such as X-Order-Id")
		}
		return directive.In(d, checkFields(h.RepeatHeader))
	}),
	text("compare", "body or none", func(h *Handler) *string { return &h.Compare }, checkCompare),
	flag("free_errors", func(h *Handler) *bool { return &h.FreeErrors }),
	directive.On("buffer", func(h *Handler, d *caddyfile.Dispenser) error {
		h.Buffer, h.BufferDisk = nil, nil
		if err := directive.Sizes(d, "a size such as 64KiB, and perhaps one on disk such as 256MiB", &h.Buffer, &h.BufferDisk); err != nil {
			return err
		}
		return directive.In(d, checkBuffer(h))
	}),
	directive.On("path", func(h *Handler, d *caddyfile.Dispenser) (err error) {
		h.Path, err = engines.ParsePath(d)
		return err
	}),
	directive.On("engine", func(h *Handler, d *caddyfile.Dispenser) (err error) {
		h.EngineRaw, err = engines.Parse(d)
		return err
	}),
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	once [<matcher>] {
//	    key           <text>
//	    scope         <text>|none
//	    required
//	    methods       <method...>
//	    keep          <duration>
//	    timeout       <duration>
//	    max_response  <size>
//	    repeat_header <field...>
//	    compare       body|none
//	    free_errors
//	    buffer        <size> [<disk>]
//	    path          <directory>
//	    engine        <name> [{ ... }]
//	}
//
// A repeated subdirective overrides the earlier one.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := subdirectives.ParseBlock(d, "once", h); err != nil {
		return err
	}
	return directive.In(d, checkScope(h.Scope))
}

func text(name, expected string, field func(*Handler) *string, check func(string) error) directive.Subdirective[*Handler] {
	return directive.On(name, func(h *Handler, d *caddyfile.Dispenser) error {
		value, err := directive.Value(d, expected)
		switch {
		case err != nil:
			return err
		case value == "":
			return d.Errf("%s: empty; expected %s", name, expected)
		}
		*field(h) = value
		return directive.In(d, check(value))
	})
}

func flag(name string, field func(*Handler) *bool) directive.Subdirective[*Handler] {
	return directive.On(name, func(h *Handler, d *caddyfile.Dispenser) error {
		*field(h) = true
		return directive.Flag(d)
	})
}

func duration(name string, field func(*Handler) **caddy.Duration, check func(time.Duration) error) directive.Subdirective[*Handler] {
	return directive.On(name, func(h *Handler, d *caddyfile.Dispenser) error {
		value, err := directive.Duration(d, 0)
		*field(h) = &value
		if err != nil {
			return err
		}
		return directive.In(d, check(time.Duration(value)))
	})
}

// fillIn applies the defaults, and refuses settings that make no sense.
func (h *Handler) fillIn() (err error) {
	if h.Path, err = engines.ExpandPath(h.Path); err != nil {
		return err
	}
	h.Key, h.Compare = cmp.Or(h.Key, defaultKey), cmp.Or(h.Compare, compareBody)
	if h.Methods = directive.NormalMethods(h.Methods); len(h.Methods) == 0 {
		h.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	h.Keep, h.Timeout = cmp.Or(h.Keep, new(defaultKeep)), cmp.Or(h.Timeout, new(defaultTimeout))
	h.MaxResponse = cmp.Or(h.MaxResponse, new(directive.Size(256<<10)))
	h.Buffer, h.BufferDisk = cmp.Or(h.Buffer, new(directive.Size(64<<10))), cmp.Or(h.BufferDisk, new(directive.Size(256<<20)))
	errs := []error{
		checkKey(h.Key), checkScope(h.Scope), checkMethods(h.Methods), checkKeep(h.keepTime()), checkTimeout(time.Duration(*h.Timeout)), checkMaxResponse(h.MaxResponse),
		checkFields(h.RepeatHeader), checkCompare(h.Compare), checkBuffer(h),
	}
	return errors.Join(errs...)
}

func checkKey(key string) error {
	if !strings.Contains(key, "{") {
		return fmt.Errorf("key %q: expected a text with a placeholder, such as %s; all requests would have one key", key, defaultKey)
	}
	return nil
}

func checkScope(scope string) error {
	if scope == "" {
		return errors.New("scope: missing; expected whose keys these are, such as {http.auth.user.id}, or none if all clients may share them")
	}
	return nil
}

// warnOfScope warns of a scope without a placeholder: its braces may be missing, and then all
// clients share their keys, and get each other's answers.
func (h *Handler) warnOfScope() {
	if h.Scope != scopeNone && !strings.Contains(h.Scope, "{") {
		h.log.Warn("the scope has no placeholder, so all clients share their keys; write one such as {http.auth.user.id}, or none")
	}
}

func checkMethods(methods []string) error { return directive.CheckMethods("methods", methods) }

func checkKeep(keep time.Duration) error {
	if keep > maxKeep {
		return fmt.Errorf("keep %s: expected a duration of at most 7d, such as 24h", keep)
	}
	return directive.CheckDuration("keep", keep, time.Second)
}

func checkTimeout(timeout time.Duration) error { return directive.CheckDuration("timeout", timeout, 0) }

func checkMaxResponse(size *directive.Size) error {
	return directive.CheckSize("max_response", size, 1, maxResponse, "from 1 to 64MiB, such as 256KiB")
}

func checkFields(names []string) error {
	for _, name := range names {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("repeat_header: %q is not the name of a field; expected one such as X-Order-Id", name)
		}
	}
	return nil
}

func checkCompare(word string) error {
	if word != compareBody && word != compareNone {
		return fmt.Errorf("compare %q: expected body or none", word)
	}
	return nil
}

func checkBuffer(h *Handler) error {
	return errors.Join(
		directive.CheckSize("buffer", h.Buffer, 0, maxBuffer, "from 0 to 1GiB, such as 64KiB; it cannot be off, since bodies are compared"),
		directive.CheckSize("buffer_disk", h.BufferDisk, 0, 1<<40, "from 0 to 1TiB, such as 256MiB"))
}

func (h *Handler) warnOfSetCookie() {
	if slices.ContainsFunc(h.RepeatHeader, isSetCookie) {
		h.log.Warn("repeat_header has Set-Cookie, which is never repeated: it would give one client the session of another")
	}
}

func isSetCookie(name string) bool { return strings.EqualFold(name, "Set-Cookie") }

// repeats reports whether a field of the answer is repeated.
func (h *Handler) repeats(name string) bool {
	switch {
	case isSetCookie(name):
		return false
	case strings.HasPrefix(name, "Content-"):
		return true
	}
	switch name {
	case "Location", "Etag", "Last-Modified", "Link":
		return true
	}
	return slices.ContainsFunc(h.RepeatHeader, func(field string) bool { return strings.EqualFold(field, name) })
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
