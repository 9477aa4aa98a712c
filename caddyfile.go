package orderly

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/once"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/modules/uniqueids"
)

func init() {
	register("unique_ids", httpcaddyfile.Before, "tracing", func() handler { return new(uniqueids.Handler) })
	// A repetition needs no turn of serialize. But who the client is has been settled before, and
	// what encode makes of an answer is not kept.
	register("once", httpcaddyfile.Before, "templates", func() handler { return new(once.Handler) })
	register("serialize", httpcaddyfile.After, "templates", func() handler { return new(serialize.Handler) })

	// Where all of a site is serialized, its status page must not wait in the queue
	// itself. But it must come after directives that ask for a password.
	register("serialize_status", httpcaddyfile.Before, "templates", func() handler { return new(serialize.Status) })
}

// handler is the handler of a directive, which reads its tokens.
type handler interface {
	caddyfile.Unmarshaler
	caddyhttp.MiddlewareHandler
}

// register registers a directive, which may have a matcher, and gives it its place.
func register(name string, place httpcaddyfile.Positional, other string, empty func() handler) {
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		parsed := empty()
		return parsed, parsed.UnmarshalCaddyfile(h.Dispenser)
	})
	httpcaddyfile.RegisterDirectiveOrder(name, place, other)
}
