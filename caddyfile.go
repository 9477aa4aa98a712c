package orderly

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/modules/uniqueids"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("unique_ids", uniqueids.ParseDirective)
	httpcaddyfile.RegisterDirectiveOrder("unique_ids", httpcaddyfile.Before, "tracing")

	// A handler directive would take no part in the rule that only the most
	// specific serialize of a block applies; that needs a group of routes.
	httpcaddyfile.RegisterDirective("serialize", serialize.ParseDirective)
	httpcaddyfile.RegisterDirectiveOrder("serialize", httpcaddyfile.After, "templates")

	// Where all of a site is serialized, its status page must not stand in
	// line itself; but it must come after those who ask for a password.
	httpcaddyfile.RegisterHandlerDirective("serialize_status", serialize.ParseStatusDirective)
	httpcaddyfile.RegisterDirectiveOrder("serialize_status", httpcaddyfile.Before, "templates")
}
