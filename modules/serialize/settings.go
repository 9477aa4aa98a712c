package serialize

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/serializer"
)

const (
	defaultPrefix  = "serializer_"
	defaultTimeout = "60s"

	dropNewest = "drop_newest"
	dropOldest = "drop_oldest"

	onDisconnectFinish = "finish"
	onDisconnectCancel = "cancel"

	maxResponseBuffer = 1 << 30
)

// settings are those from which the Caddyfile, the defaults and the checks come, in the order of the documents. A test
// compares docs/directives.md and the comments of the fields of [Handler], which Caddy's site shows.
var settings = directive.Settings[*Handler]{
	engines.PathSetting(func(s *Handler) *string { return &s.Path }),
	directive.TextSetting("prefix", "<text>", defaultPrefix, "a text",
		func(s *Handler) *string { return &s.Prefix }, func(s *Handler) error { return checkPrefix(s.Prefix) }),
	directive.MethodsSetting("skip_methods", func(s *Handler) *[]string { return &s.SkipMethods }),
	directive.DurationSetting("timeout", defaultTimeout, 0, directive.Longest, func(s *Handler) **caddy.Duration { return &s.Timeout }).
		With("<duration> [<text>]", defaultTimeout, (*Handler).parseTimeout),
	directive.NumberSetting("queue_length", "<n>", 0, directive.AtLeast(0), func(s *Handler) *int { return &s.QueueLength }),
	directive.ChoiceSetting("when_full", func(s *Handler) *string { return &s.WhenFull }, dropNewest, dropOldest),
	directive.NumberSetting("error_code", "<status>", 503, directive.Range{Least: 400, Most: 599, Want: "a status from 400 to 599"},
		func(s *Handler) *int { return &s.ErrorCode }),
	{
		Name: "error_response", Syntax: "<mime type> <body>", Usual: "none: the error goes to `handle_errors`",
		Parse: (*Handler).parseErrorResponse,
		Check: func(s *Handler) error { return checkErrorResponse(s.ErrorResponse) },
	},
	directive.NumberSetting("concurrency", "<n>", 1, directive.AtLeast(1), func(s *Handler) *int { return &s.Concurrency }),
	directive.ListSetting("slots", "<name...>", wantSlots, func(s *Handler) *[]string { return &s.Slots }, (*Handler).checkSlots),
	directive.MethodsSetting("shared_methods", func(s *Handler) *[]string { return &s.SharedMethods }),
	directive.DurationSetting("hold_timeout", "0", 0, directive.Longest, func(s *Handler) **caddy.Duration { return &s.HoldTimeout }),
	directive.DurationSetting("hold_at_least", "none", time.Millisecond, directive.Longest, func(s *Handler) **caddy.Duration { return &s.HoldAtLeast }),
	directive.ChoiceSetting("on_disconnect", func(s *Handler) *string { return &s.OnDisconnect }, onDisconnectFinish, onDisconnectCancel),
	directive.BufferSetting(directive.Off, func(s *Handler) **directive.Size { return &s.Buffer }, func(s *Handler) **directive.Size { return &s.BufferDisk }),
	directive.SizeSetting("response_buffer", "256KiB", 0, maxResponseBuffer, "from 0 to 1GiB, such as 256KiB",
		func(s *Handler) **directive.Size { return &s.ResponseBuffer }),
	{
		Name: "waiting_page", Syntax: "[{ ... }]", Usual: "none",
		Parse: (*Handler).parseWaitingPage, // WaitingPage.provision does the rest
	}, {
		Name: "visit", Syntax: "<idle> [<longest>]", Usual: "none",
		Parse: (*Handler).parseVisit,
		Check: func(s *Handler) error { return s.Visit.check() },
	},
	directive.DurationSetting("keepalive", "15s", time.Second, directive.Longest, (*Handler).interval).
		With("[<interval>] [always]", "off", (*Handler).parseKeepAlive),
	directive.FlagSetting("dry_run", func(s *Handler) *bool { return &s.DryRun }),
	engines.EngineSetting(func(s *Handler) *json.RawMessage { return &s.EngineRaw }),
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize [<matcher>] [off|<prefix>] {
//	    <setting> <values...>
//	}
//
// A repeated setting overrides the earlier one. The prefix in the line of the directive overrides one
// in the block, which may come from a snippet.
func (s *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	prefix, err := s.parseLine(d)
	if err != nil {
		return err
	}
	if s.Off && d.NextBlock(0) {
		return d.Errf("serialize off: unexpected %q; a location that is not serialized has no options", d.Val())
	}
	if err := settings.ParseBlock(d, "serialize", s); err != nil {
		return err
	}
	s.Prefix = cmp.Or(prefix, s.Prefix)
	return directive.In(d, s.checkTogether())
}

// parseLine parses the word after the directive: off, the queue's prefix, or none. A word that
// looks like a misplaced matcher is no prefix.
func (s *Handler) parseLine(d *caddyfile.Dispenser) (prefix string, err error) {
	if !d.NextArg() {
		return "", nil
	}
	word := d.Val()
	switch {
	case word == "off":
		s.Off = true
		return "", nil
	case strings.ContainsAny(queueview.Placeholder.ReplaceAllString(word, ""), "/*"):
		return "", directive.Unexpected(d, "serialize", "off, a prefix without / and *, or a block")
	}
	return word, directive.In(d, checkPrefix(word))
}

// fillIn applies the defaults, refuses settings that make no sense, and derives the rest.
func (s *Handler) fillIn() (err error) {
	if s.Path, err = engines.ExpandPath(s.Path); err != nil {
		return err
	}
	if err := errors.Join(s.checkTogether(), s.fillInSlots(), settings.FillIn(s)); err != nil {
		return err
	}
	s.derive()
	if s.WaitingPage == nil {
		return nil
	}
	if err := s.WaitingPage.provision(s.Visit != nil); err != nil {
		return fmt.Errorf("waiting_page: %w", err)
	}
	return nil
}

func checkPrefix(prefix string) error {
	_, err := queuename.Parse(prefix)
	switch {
	case err != nil:
		return fmt.Errorf("prefix %q: %w", prefix, err)
	case prefix == "":
		return errors.New("prefix: expected a text; leave prefix out for " + defaultPrefix)
	// A placeholder may have a slash, as {http.request.remote.host/32,64}; values are escaped.
	case strings.ContainsAny(queueview.Placeholder.ReplaceAllString(prefix, ""), `/\`):
		return fmt.Errorf("prefix %q: expected a text without a path separator; the directory is set by path", prefix)
	case serializer.AmbiguousQueueName(prefix):
		return fmt.Errorf("prefix %q: it must not end in four zeros and a digit, for that is how timestamps start", prefix)
	}
	return nil
}

func (s *Handler) parseErrorResponse(d *caddyfile.Dispenser) error {
	var response ErrorResponse
	err := directive.Values(d, 2, "a MIME type and a body", &response.ContentType, &response.Body)
	if s.ErrorResponse = &response; strings.TrimSpace(response.ContentType+response.Body) == "" {
		s.ErrorResponse = nil
	}
	return err
}

func checkErrorResponse(r *ErrorResponse) error {
	if r == nil {
		return nil
	}
	if strings.TrimSpace(r.ContentType) == "" || strings.TrimSpace(r.Body) == "" {
		return errors.New("error_response: expected a MIME type and a body; leave both blank to take an earlier one back")
	}
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)
