package orderly

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// parseUniqueIDs sets up the unique_ids directive. Syntax:
//
//	unique_ids [<matcher>] {
//	    layout  classic|threaded|modern
//	    node    auto|random|<IPv4>
//	    shards  <n>
//	    trust   <header>
//	}
func parseUniqueIDs(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	u := new(UniqueIDs)
	return u, u.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	unique_ids {
//	    layout  classic|threaded|modern
//	    node    auto|random|<IPv4>
//	    shards  <n>
//	    trust   <header>
//	}
func (u *UniqueIDs) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if d.NextArg() {
		return d.Errf("unique_ids: unexpected argument %q; expected a block", d.Val())
	}
	for d.NextBlock(0) {
		if err := u.parseSubdirective(d); err != nil {
			return err
		}
	}
	return nil
}

func (u *UniqueIDs) parseSubdirective(d *caddyfile.Dispenser) (err error) {
	switch d.Val() {
	case "layout":
		if u.Layout, err = value(d, "classic, threaded or modern"); err == nil {
			err = in(d, checkLayout(u.Layout))
		}
	case "node":
		if u.Node, err = value(d, "auto, random or an IPv4 address"); err == nil {
			err = in(d, checkNode(u.Node))
		}
	case "shards":
		if u.Shards, err = count(d, 1); err == nil {
			err = in(d, checkShards(u.Shards))
		}
	case "trust":
		if u.Trust, err = value(d, "the name of a request header field"); err == nil {
			err = in(d, checkTrust(u.Trust))
		}
	default:
		err = unknownSubdirective(d, "unique_ids", []string{"layout", "node", "shards", "trust"})
	}
	return err
}

// parseSerialize sets up the serialize directive, whose routes take part in the
// order of its block. One that applies to every request, and is the only one of
// its site, needs none: Caddy then makes one route of it and its neighbours,
// which costs every request less.
func parseSerialize(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // directive name, so that errors have a line
	place := tokenPlace{h.File(), h.Line()}
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	s := new(Serialize)
	if err := s.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	values := h.NewRoute(matcher, s)
	// Of a named route that is one route, Caddy keeps the first handler only; the
	// group makes it two.
	if len(values) == 0 || matcher == nil && onlyOne(h) && !h.IsNamedRoute() {
		return values, nil
	}
	routes, err := addSerializeLine(h, place, matcher, values[0].Value.(caddyhttp.Route))
	if err != nil {
		return nil, err
	}
	values[0].Value = caddyhttp.Subroute{Routes: routes}
	return values, nil
}

// serializeSubdirectives are the subdirectives of serialize, in the order of
// the documentation. A repeated one overrides the earlier.
var serializeSubdirectives = []struct {
	name  string
	parse func(*Serialize, *caddyfile.Dispenser) error
}{
	{"path", (*Serialize).parsePath},
	{"prefix", (*Serialize).parsePrefix},
	{"skip_methods", (*Serialize).parseSkipMethods},
	{"timeout", (*Serialize).parseTimeout},
	{"queue_length", (*Serialize).parseQueueLength},
	{"error_code", (*Serialize).parseErrorCode},
	{"error_response", (*Serialize).parseErrorResponse},
	{"concurrency", (*Serialize).parseConcurrency},
	{"shared_methods", (*Serialize).parseSharedMethods},
	{"hold_timeout", (*Serialize).parseHoldTimeout},
	{"on_disconnect", (*Serialize).parseOnDisconnect},
	{"buffer", (*Serialize).parseBuffer},
	{"engine", (*Serialize).parseEngine},
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize [<matcher>] [off] {
//	    path            <directory>
//	    prefix          <text>
//	    skip_methods    <method...>
//	    timeout         <duration>
//	    queue_length    <n>
//	    error_code      <status>
//	    error_response  <mime type> <body>
//	    concurrency     <n>
//	    shared_methods  <method...>
//	    hold_timeout    <duration>
//	    on_disconnect   finish|cancel
//	    buffer          <size> [<disk>]
//	    engine          <name> [{ ... }]
//	}
func (s *Serialize) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
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
	for d.NextBlock(0) {
		if s.Off {
			return d.Errf("serialize off: unexpected %q; a location that is not serialized has no options", d.Val())
		}
		if err := s.parseSubdirective(d); err != nil {
			return err
		}
	}
	return nil
}

func (s *Serialize) parseSubdirective(d *caddyfile.Dispenser) error {
	names := make([]string, len(serializeSubdirectives))
	for i, sub := range serializeSubdirectives {
		if sub.name == d.Val() {
			return sub.parse(s, d)
		}
		names[i] = sub.name
	}
	return unknownSubdirective(d, "serialize", names)
}

func unknownSubdirective(d *caddyfile.Dispenser, directive string, known []string) error {
	if len(known) == 0 {
		return d.Errf("%s: unknown subdirective %q; it has none", directive, d.Val())
	}
	return d.Errf("%s: unknown subdirective %q; expected one of %s", directive, d.Val(), strings.Join(known, ", "))
}

// value reads the only value of a subdirective.
func value(d *caddyfile.Dispenser, expected string) (string, error) {
	name := d.Val()
	if !d.NextArg() {
		return "", d.Errf("%s: no value; expected %s", name, expected)
	}
	text := d.Val()
	if d.NextArg() {
		return "", d.Errf("%s: unexpected %q after %q; expected %s", name, d.Val(), text, expected)
	}
	return text, nil
}

// in puts the line of the Caddyfile in front of an error.
func in(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

func (s *Serialize) parsePath(d *caddyfile.Dispenser) (err error) {
	if s.Path, err = value(d, "a directory"); err != nil {
		return err
	}
	if strings.TrimSpace(s.Path) == "" {
		return d.Err("path: expected a directory; leave path out for the system's temporary directory")
	}
	if strings.Contains(s.Path, "{") {
		return nil // known when the configuration is loaded
	}
	return in(d, checkPath(s.Path))
}

func (s *Serialize) parsePrefix(d *caddyfile.Dispenser) (err error) {
	if s.Prefix, err = value(d, "a text"); err != nil {
		return err
	}
	if s.Prefix == "" {
		return d.Err("prefix: expected a text; leave prefix out for " + defaultPrefix)
	}
	return in(d, checkPrefix(s.Prefix))
}

func (s *Serialize) parseSkipMethods(d *caddyfile.Dispenser) (err error) {
	s.SkipMethods, err = methods(d)
	return err
}

func (s *Serialize) parseSharedMethods(d *caddyfile.Dispenser) (err error) {
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
	return methods, in(d, checkMethods(name, methods))
}

func (s *Serialize) parseTimeout(d *caddyfile.Dispenser) error {
	timeout, err := duration(d)
	s.Timeout = &timeout
	return err
}

func (s *Serialize) parseHoldTimeout(d *caddyfile.Dispenser) (err error) {
	s.HoldTimeout, err = duration(d)
	return err
}

func duration(d *caddyfile.Dispenser) (caddy.Duration, error) {
	const expected = "a duration of 0 or more with a unit, such as 60s or 5m"
	name := d.Val()
	text, err := value(d, expected)
	if err != nil {
		return 0, err
	}
	dur, err := caddy.ParseDuration(text)
	if err != nil {
		return 0, d.Errf("%s %q: expected %s", name, text, expected)
	}
	return caddy.Duration(dur), in(d, checkDuration(name, dur))
}

func (s *Serialize) parseQueueLength(d *caddyfile.Dispenser) (err error) {
	s.QueueLength, err = count(d, 0)
	return err
}

func (s *Serialize) parseConcurrency(d *caddyfile.Dispenser) (err error) {
	s.Concurrency, err = count(d, 1)
	return err
}

func count(d *caddyfile.Dispenser, least int) (int, error) {
	name, expected := d.Val(), "a whole number, "+strconv.Itoa(least)+" or more"
	text, err := value(d, expected)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, d.Errf("%s %q: expected %s", name, text, expected)
	}
	return n, in(d, checkCount(name, n, least))
}

func (s *Serialize) parseErrorCode(d *caddyfile.Dispenser) error {
	const expected = "a status from 400 to 599"
	text, err := value(d, expected)
	if err != nil {
		return err
	}
	if s.ErrorCode, err = strconv.Atoi(text); err != nil {
		return d.Errf("error_code %q: expected %s", text, expected)
	}
	return in(d, checkErrorCode(s.ErrorCode))
}

func (s *Serialize) parseErrorResponse(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Errf("error_response: found %d values; expected a MIME type and a body", len(args))
	}
	if strings.TrimSpace(args[0]) == "" && strings.TrimSpace(args[1]) == "" {
		s.ErrorResponse = nil
		return nil
	}
	s.ErrorResponse = &ErrorResponse{ContentType: args[0], Body: args[1]}
	return in(d, checkErrorResponse(s.ErrorResponse))
}

func (s *Serialize) parseOnDisconnect(d *caddyfile.Dispenser) (err error) {
	if s.OnDisconnect, err = value(d, "finish or cancel"); err != nil {
		return err
	}
	return in(d, checkOnDisconnect(s.OnDisconnect))
}

func (s *Serialize) parseBuffer(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	switch len(args) {
	case 0:
		return d.Err("buffer: no value; expected a size such as 64KiB, and perhaps one on disk such as 64MiB")
	case 1, 2:
	default:
		return d.Errf("buffer: unexpected %q after %q; expected a size such as 64KiB, and perhaps one on disk such as 64MiB", args[2], args[1])
	}
	memory, err := ParseSize(args[0])
	if err != nil || memory > maxBuffer {
		return d.Errf("buffer: size %q: expected a number of bytes up to 1GiB, such as 64KiB", args[0])
	}
	s.Buffer, s.BufferDisk = &memory, nil
	if len(args) == 1 {
		return nil
	}
	disk, err := ParseSize(args[1])
	if err != nil {
		return d.Errf("buffer: size on disk %q: expected a number of bytes up to 1TiB, such as 64MiB", args[1])
	}
	s.BufferDisk = &disk
	return nil
}

func (s *Serialize) parseEngine(d *caddyfile.Dispenser) error {
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
	_ caddyfile.Unmarshaler = (*UniqueIDs)(nil)
	_ caddyfile.Unmarshaler = (*Serialize)(nil)
	_ json.Unmarshaler      = (*Size)(nil)
)
