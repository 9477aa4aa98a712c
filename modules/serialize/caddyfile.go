package serialize

import (
	"cmp"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
)

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize [<matcher>] [off|<prefix>] {
//	    <setting> <values...>
//	}
//
// settings.go has the settings, each with the syntax of its values. A repeated subdirective overrides
// the earlier one. The prefix in the line of the directive overrides one in the block, which may come
// from a snippet.
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

func (s *Handler) parseErrorResponse(d *caddyfile.Dispenser) error {
	var response ErrorResponse
	err := directive.Values(d, 2, "a MIME type and a body", &response.ContentType, &response.Body)
	if s.ErrorResponse = &response; strings.TrimSpace(response.ContentType+response.Body) == "" {
		s.ErrorResponse = nil
	}
	return err
}
