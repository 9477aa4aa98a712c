package serialize

import (
	"cmp"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/lineorder"
)

// All handlers of a queue must agree on dry_run. Otherwise, some of its requests
// would wait for others that wait for nobody.

// declaration is what the first handler of a queue says, and where.
type declaration struct {
	dryRun bool
	at     string
}

// declarations are those of all queues, by the identity of the queue.
type declarations[K comparable] map[K]declaration

// agree refuses a handler that differs from an earlier one of its queue.
func (d declarations[K]) agree(queue K, prefix string, declared declaration) error {
	earlier, ok := d[queue]
	if !ok {
		d[queue] = declared
		return nil
	}
	if earlier.dryRun == declared.dryRun {
		return nil
	}
	with, without := earlier, declared
	if !with.dryRun {
		with, without = declared, earlier
	}
	return fmt.Errorf("dry_run: queue %q is in a dry run at %s, and not at %s; it must be the same wherever the queue is used", prefix, with.at, without.at)
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
	lines, ok := h.State[key].(declarations[lineIdentity])
	if !ok {
		lines = make(declarations[lineIdentity])
		h.State[key] = lines
	}
	queue := lineIdentity{s.Path, cmp.Or(s.Prefix, defaultPrefix), string(s.EngineRaw)}
	if err := lines.agree(queue, queue.prefix, declaration{s.DryRun, at.String()}); err != nil {
		return h.WrapErr(err)
	}
	return nil
}
