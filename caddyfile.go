package orderly

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/modules/uniqueids"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("unique_ids", uniqueids.ParseDirective)
	httpcaddyfile.RegisterDirectiveOrder("unique_ids", httpcaddyfile.Before, "tracing")

	httpcaddyfile.RegisterHandlerDirective("serialize", serialize.ParseDirective)
	httpcaddyfile.RegisterDirectiveOrder("serialize", httpcaddyfile.After, "templates")

	// Where all of a site is serialized, its status page must not wait in the queue
	// itself. But it must come after directives that ask for a password.
	httpcaddyfile.RegisterHandlerDirective("serialize_status", serialize.ParseStatusDirective)
	httpcaddyfile.RegisterDirectiveOrder("serialize_status", httpcaddyfile.Before, "templates")
}
