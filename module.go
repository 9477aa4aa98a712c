// Package orderly is a Caddy plugin for requests that need a name or must wait
// their turn.
//
//   - unique_ids ([UniqueIDs]) gives every request its IDs, made when first
//     asked for.
//   - serialize ([Serialize]) lets one request at a time into a location, the
//     others in line in the order they came.
//
// The work is done by two libraries that know nothing of Caddy: uniqueid and
// serializer. This package turns configuration and requests into calls of
// theirs.
package orderly

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func init() {
	caddy.RegisterModule(UniqueIDs{})
	caddy.RegisterModule(Serialize{})
	caddy.RegisterModule(FileEngine{})
	caddy.RegisterModule(MemoryEngine{})
	caddy.RegisterModule(SerializeStatus{})
	caddy.RegisterModule(AdminAPI{})
	caddycmd.RegisterCommand(serializeCommands)

	httpcaddyfile.RegisterHandlerDirective("unique_ids", parseUniqueIDs)
	httpcaddyfile.RegisterDirectiveOrder("unique_ids", httpcaddyfile.Before, "tracing")

	// A handler directive would take no part in the rule that only the most
	// specific serialize of a block applies; that needs a group of routes.
	httpcaddyfile.RegisterDirective("serialize", parseSerialize)
	httpcaddyfile.RegisterDirectiveOrder("serialize", httpcaddyfile.After, "templates")

	// Where all of a site is serialized, its status page must not stand in
	// line itself; but it must come after those who ask for a password.
	httpcaddyfile.RegisterHandlerDirective("serialize_status", parseSerializeStatus)
	httpcaddyfile.RegisterDirectiveOrder("serialize_status", httpcaddyfile.Before, "templates")
}
