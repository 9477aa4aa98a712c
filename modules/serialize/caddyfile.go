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
)

// ParseDirective sets up the serialize directive, which may have a matcher. Its syntax is
// that of [Handler.UnmarshalCaddyfile].
func ParseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(Handler)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
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
//	    waiting_page    [{ ... }]
//	    dry_run
//	    engine          <name> [{ ... }]
//	}
//
// `buffer off` streams the body. A repeated subdirective overrides the earlier one.
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
	return directive.In(d, checkWhenFull(s.WhenFull, s.QueueLength))
}

func (s *Handler) parsePath(d *caddyfile.Dispenser) (err error) {
	if s.Path, err = directive.Value(d, "a directory"); err != nil {
		return err
	}
	if strings.TrimSpace(s.Path) == "" {
		return d.Err("path: expected a directory; leave path out for the default, queues in Caddy's data directory")
	}
	if strings.Contains(s.Path, "{") {
		return nil // known when the configuration is loaded
	}
	return directive.In(d, checkPath(s.Path))
}

func (s *Handler) parsePrefix(d *caddyfile.Dispenser) (err error) {
	s.Prefix, err = directive.Checked(d, "a text", checkPrefix)
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

func (s *Handler) parseBuffer(d *caddyfile.Dispenser) error {
	const expected = "a size such as 64KiB, and perhaps one on disk such as 256MiB, or off"
	args := d.RemainingArgs()
	switch len(args) {
	case 0:
		return d.Err("buffer: no value; expected " + expected)
	case 1, 2:
	default:
		return d.Errf("buffer: unexpected %q after %q; expected %s", args[2], args[1], expected)
	}
	s.Buffer, s.BufferDisk = nil, nil
	if args[0] == "off" {
		if len(args) > 1 {
			return d.Errf("buffer off: unexpected %q; a body that is not buffered needs no disk", args[1])
		}
		s.Buffer = new(bufferOff)
		return nil
	}
	memory, err := parseSize(args[0])
	if err != nil || memory > maxBuffer {
		return d.Errf("buffer: size %q: expected a number of bytes up to 1GiB, such as 64KiB, or off", args[0])
	}
	s.Buffer = &memory
	if len(args) == 1 {
		return nil
	}
	disk, err := parseSize(args[1])
	if err != nil {
		return d.Errf("buffer: size on disk %q: expected a number of bytes up to 1TiB, such as 256MiB", args[1])
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
	if err != nil || size > maxBuffer {
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
