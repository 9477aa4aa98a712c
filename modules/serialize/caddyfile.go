package serialize

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/lineorder"
)

// ParseDirective sets up the serialize directive, whose routes take part in the
// order of its block. A directive that applies to every request, and is the
// only one of its site, needs no route of its own. Caddy then makes one route
// of it and its neighbours, which costs every request less.
func ParseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // directive name, so that errors have a line
	at := lineorder.PositionOf(h)
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	s := new(Handler)
	if err := s.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	if err := s.agreeInCaddyfile(h, at); err != nil {
		return nil, err
	}
	values := h.NewRoute(matcher, s)
	// If a named route is a single route, Caddy keeps only its first handler; the
	// group makes it two routes.
	if len(values) == 0 || matcher == nil && lineorder.OnlyOne(h) && !h.IsNamedRoute() {
		return values, nil
	}
	routes, err := lineorder.Add(h, at, matcher, values[0].Value.(caddyhttp.Route))
	if err != nil {
		return nil, err
	}
	values[0].Value = caddyhttp.Subroute{Routes: routes}
	return values, nil
}

var subdirectives = directive.Table[*Handler]{
	directive.On("path", (*Handler).parsePath),
	directive.On("prefix", (*Handler).parsePrefix),
	directive.On("skip_methods", (*Handler).parseSkipMethods),
	directive.On("timeout", (*Handler).parseTimeout),
	directive.On("queue_length", (*Handler).parseQueueLength),
	directive.On("when_full", (*Handler).parseWhenFull),
	directive.On("error_code", (*Handler).parseErrorCode),
	directive.On("error_response", (*Handler).parseErrorResponse),
	directive.On("concurrency", (*Handler).parseConcurrency),
	directive.On("shared_methods", (*Handler).parseSharedMethods),
	directive.On("hold_timeout", (*Handler).parseHoldTimeout),
	directive.On("on_disconnect", (*Handler).parseOnDisconnect),
	directive.On("buffer", (*Handler).parseBuffer),
	directive.On("response_buffer", (*Handler).parseResponseBuffer),
	directive.On("dry_run", (*Handler).parseDryRun),
	directive.On("waiting_page", (*Handler).parseWaitingPage),
	directive.On("engine", (*Handler).parseEngine),
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize [<matcher>] [off] {
//	    path            <directory>
//	    prefix          <text>
//	    skip_methods    <method...>
//	    timeout         <duration>
//	    queue_length    <n>
//	    when_full       drop_newest|drop_oldest
//	    error_code      <status>
//	    error_response  <mime type> <body>
//	    concurrency     <n>
//	    shared_methods  <method...>
//	    hold_timeout    <duration>
//	    on_disconnect   finish|cancel
//	    buffer          <size> [<disk>]
//	    response_buffer <size>
//	    dry_run
//	    waiting_page    [{ ... }]
//	    engine          <name> [{ ... }]
//	}
func (s *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if d.NextArg() {
		if d.Val() != "off" {
			return d.Errf("serialize: unexpected argument %q; expected off, or a block", d.Val())
		}
		s.Off = true
	}
	if d.NextArg() {
		return d.Errf("serialize: unexpected argument %q", d.Val())
	}
	if s.Off && d.NextBlock(0) {
		return d.Errf("serialize off: unexpected %q; a location that is not serialized has no options", d.Val())
	}
	if err := subdirectives.ParseBlock(d, "serialize", s); err != nil {
		return err
	}
	if s.WhenFull == "" {
		return nil
	}
	return directive.In(d, checkWhenFull(s.WhenFull, s.QueueLength)) // which may come later
}

func (s *Handler) parsePath(d *caddyfile.Dispenser) (err error) {
	if s.Path, err = directive.Value(d, "a directory"); err != nil {
		return err
	}
	if strings.TrimSpace(s.Path) == "" {
		return d.Err("path: expected a directory; leave path out for the system's temporary directory")
	}
	if strings.Contains(s.Path, "{") {
		return nil // known when the configuration is loaded
	}
	return directive.In(d, checkPath(s.Path))
}

func (s *Handler) parsePrefix(d *caddyfile.Dispenser) (err error) {
	if s.Prefix, err = directive.Value(d, "a text"); err != nil {
		return err
	}
	if s.Prefix == "" {
		return d.Err("prefix: expected a text; leave prefix out for " + defaultPrefix)
	}
	return directive.In(d, checkPrefix(s.Prefix))
}

func (s *Handler) parseSkipMethods(d *caddyfile.Dispenser) (err error) {
	s.SkipMethods, err = methods(d)
	return err
}

func (s *Handler) parseSharedMethods(d *caddyfile.Dispenser) (err error) {
	s.SharedMethods, err = methods(d)
	return err
}

// methods reads request methods, separated by spaces or commas. A blank text
// is none.
func methods(d *caddyfile.Dispenser) ([]string, error) {
	name := d.Val()
	args := d.RemainingArgs()
	if len(args) == 0 {
		return nil, d.Errf("%s: no value; expected request methods such as GET, separated by spaces or commas", name)
	}
	methods := normalizeMethods(args)
	return methods, directive.In(d, checkMethods(name, methods))
}

func (s *Handler) parseTimeout(d *caddyfile.Dispenser) error {
	timeout, err := directive.Duration(d)
	s.Timeout = &timeout
	return err
}

func (s *Handler) parseHoldTimeout(d *caddyfile.Dispenser) (err error) {
	s.HoldTimeout, err = directive.Duration(d)
	return err
}

func (s *Handler) parseQueueLength(d *caddyfile.Dispenser) (err error) {
	s.QueueLength, err = directive.Count(d, 0)
	return err
}

func (s *Handler) parseWhenFull(d *caddyfile.Dispenser) (err error) {
	if s.WhenFull, err = directive.Value(d, "drop_newest or drop_oldest"); err != nil {
		return err
	}
	return directive.In(d, checkWhenFull(s.WhenFull, max(s.QueueLength, 1))) // the length may come later
}

func (s *Handler) parseConcurrency(d *caddyfile.Dispenser) (err error) {
	s.Concurrency, err = directive.Count(d, 1)
	return err
}

func (s *Handler) parseErrorCode(d *caddyfile.Dispenser) error {
	const expected = "a status from 400 to 599"
	text, err := directive.Value(d, expected)
	if err != nil {
		return err
	}
	if s.ErrorCode, err = strconv.Atoi(text); err != nil {
		return d.Errf("error_code %q: expected %s", text, expected)
	}
	return directive.In(d, checkErrorCode(s.ErrorCode))
}

func (s *Handler) parseErrorResponse(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Errf("error_response: found %d values; expected a MIME type and a body", len(args))
	}
	if strings.TrimSpace(args[0]) == "" && strings.TrimSpace(args[1]) == "" {
		s.ErrorResponse = nil
		return nil
	}
	s.ErrorResponse = &ErrorResponse{ContentType: args[0], Body: args[1]}
	return directive.In(d, checkErrorResponse(s.ErrorResponse))
}

func (s *Handler) parseOnDisconnect(d *caddyfile.Dispenser) (err error) {
	s.OnDisconnect, err = directive.Checked(d, "finish or cancel", checkOnDisconnect)
	return err
}

func (s *Handler) parseBuffer(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	switch len(args) {
	case 0:
		return d.Err("buffer: no value; expected a size such as 64KiB, and perhaps one on disk such as 64MiB")
	case 1, 2:
	default:
		return d.Errf("buffer: unexpected %q after %q; expected a size such as 64KiB, and perhaps one on disk such as 64MiB", args[2], args[1])
	}
	memory, err := parseSize(args[0])
	if err != nil || memory > maxBuffer {
		return d.Errf("buffer: size %q: expected a number of bytes up to 1GiB, such as 64KiB", args[0])
	}
	s.Buffer, s.BufferDisk = &memory, nil
	if len(args) == 1 {
		return nil
	}
	disk, err := parseSize(args[1])
	if err != nil {
		return d.Errf("buffer: size on disk %q: expected a number of bytes up to 1TiB, such as 64MiB", args[1])
	}
	s.BufferDisk = &disk
	return nil
}

func (s *Handler) parseResponseBuffer(d *caddyfile.Dispenser) error {
	const expected = "a number of bytes up to 1GiB, such as 256KiB"
	text, err := directive.Value(d, expected)
	if err != nil {
		return err
	}
	size, err := parseSize(text)
	if err != nil || size > maxResponseBuffer {
		return d.Errf("response_buffer: size %q: expected %s", text, expected)
	}
	s.ResponseBuffer = &size
	return nil
}

func (s *Handler) parseDryRun(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Errf("dry_run: unexpected %q; it has no value", d.Val())
	}
	s.DryRun = true
	return nil
}

func (s *Handler) parseEngine(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Err("engine: no value; expected a name: " + strings.Join(engineNames(), ", "))
	}
	name := d.Val()
	if err := checkEngineName(name); err != nil {
		return d.WrapErr(err)
	}
	module, err := caddyfile.UnmarshalModule(d, engineNamespace+"."+name)
	if err != nil {
		return err
	}
	var warnings []caddyconfig.Warning
	s.EngineRaw = caddyconfig.JSONModuleObject(module, "engine", name, &warnings)
	if len(warnings) > 0 {
		return d.Errf("engine %s: %s", name, warnings[0].Message)
	}
	return nil
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ json.Unmarshaler      = (*Size)(nil)
)
