package serialize

import (
	"net"
	"net/http"
	"net/netip"
)

// includeHeader is what Caddy's templates put into the requests that httpInclude
// makes.
const includeHeader = "Caddy-Templates-Include"

// cameFromHere reports whether a request was made by this very server: by httpInclude
// of a template, or by a proxy to itself. Then the request that made it may be inside
// and wait for it.
func cameFromHere(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok { // it came through no connection
		return r.Header.Get(includeHeader) != ""
	}
	server, err := netip.ParseAddrPort(local.String())
	client := clientOf(r)
	if err != nil || !client.IsValid() || client.Addr().Unmap() != server.Addr().Unmap() {
		return false // not from this machine
	}
	return dialedHere(client)
}
