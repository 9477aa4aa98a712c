package serialize

import (
	"cmp"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/configuration"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/lineorder"
)

// joinConfiguration compares the handler with the others of its configuration.
func (s *Handler) joinConfiguration(ctx caddy.Context) (err error) {
	directory := resolveDirectory(s.Path)
	id := identify(s.module, directory)
	s.rules, s.leaveConfig, err = configuration.Join(ctx, configuration.Member{
		Space: id.space, Prefix: s.Prefix, Directory: directory, Engine: id.name,
		DryRun: s.DryRun, Rule: s.rule, Shared: s.shared,
	}, s.logger)
	return err
}

// lineIdentity identifies a queue in a Caddyfile, as far as its lines say.
type lineIdentity struct{ path, prefix, engine string }

// agreeInCaddyfile compares a line with the earlier ones. Only here is its number
// known, for the error.
func (s *Handler) agreeInCaddyfile(h httpcaddyfile.Helper, at lineorder.Position) error {
	if s.Off {
		return nil
	}
	const key = "orderly.serialize.declared"
	lines, ok := h.State[key].(configuration.Declarations[lineIdentity])
	if !ok {
		lines = make(configuration.Declarations[lineIdentity])
		h.State[key] = lines
	}
	queue := lineIdentity{s.Path, cmp.Or(s.Prefix, defaultPrefix), string(s.EngineRaw)}
	if err := lines.Agree(queue, queue.prefix, configuration.Declaration{DryRun: s.DryRun, At: at.String()}); err != nil {
		return h.WrapErr(err)
	}
	return nil
}
