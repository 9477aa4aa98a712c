package serialize

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// All handlers of a queue have to agree on dry_run. Otherwise some of its requests
// would wait for others that wait for nobody.

// declaration is what the first handler of a queue says, and where.
type declaration struct {
	dryRun bool
	at     string
}

// disagreement is the error for a handler that differs from an earlier one.
func (d declaration) disagreement(prefix, at string) error {
	with, without := d.at, at
	if !d.dryRun {
		with, without = at, d.at
	}
	return fmt.Errorf("dry_run: queue %q is in a dry run at %s, and not at %s; it must be the same wherever the queue is used", prefix, with, without)
}

// agree refuses a handler that differs from an earlier one of its queue.
func (c *configuration) agree(queue queueIdentity, dryRun bool, at place) error {
	earlier, ok := c.declared[queue]
	if !ok {
		c.declared[queue] = declaration{dryRun, at.String()}
		return nil
	}
	if earlier.dryRun == dryRun {
		return nil
	}
	return earlier.disagreement(queue.prefix, at.String())
}

// agreeInCaddyfile does the same for lines of a Caddyfile, whose numbers are known
// only there.
func (s *Handler) agreeInCaddyfile(h httpcaddyfile.Helper, at tokenPosition) error {
	if s.Off {
		return nil
	}
	const key = "orderly.serialize.declared"
	declared, ok := h.State[key].(map[[3]string]declaration)
	if !ok {
		declared = make(map[[3]string]declaration)
		h.State[key] = declared
	}
	prefix := s.Prefix
	if prefix == "" {
		prefix = defaultPrefix
	}
	queue := [3]string{s.Path, prefix, string(s.EngineRaw)}
	earlier, ok := declared[queue]
	if !ok {
		declared[queue] = declaration{s.DryRun, at.String()}
		return nil
	}
	if earlier.dryRun == s.DryRun {
		return nil
	}
	return h.WrapErr(earlier.disagreement(prefix, at.String()))
}
