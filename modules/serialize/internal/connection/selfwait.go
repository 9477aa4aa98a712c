package connection

import (
	"net"
	"net/http"
	"net/netip"
)

// includeHeader is a header that Caddy's templates set in requests of httpInclude.
const includeHeader = "Caddy-Templates-Include"

// CameFromHere reports whether this server has made the request itself: by httpInclude
// of a template, or by a proxy to itself. Then a request that is inside may be waiting
// for this one.
func CameFromHere(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok { // the request has no connection
		return r.Header.Get(includeHeader) != ""
	}
	server, err := netip.ParseAddrPort(local.String())
	client := Peer(r)
	if err != nil || !client.IsValid() || client.Addr().Unmap() != server.Addr().Unmap() {
		return false // not from this machine
	}
	return dialedHere(client)
}

// Peer is the address of the connection's other end, or the zero value without IP.
func Peer(r *http.Request) netip.AddrPort {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	return addr
}
