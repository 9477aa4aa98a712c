package connection

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"
)

// Bug: every client of this machine that waited in vain, a benchmark or a proxy in
// front, got the hint that it waits for itself.
func TestCameFromHere(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		var got *http.Request
		here := false
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got, here = r, CameFromHere(r) // while the connection is open
		}))
		listener, err := net.Listen("tcp", listen)
		if err != nil {
			t.Logf("%s: %v", listen, err) // no IPv6 here
			continue
		}
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		other := got.Clone(got.Context())
		other.RemoteAddr = netip.AddrPortFrom(Peer(got).Addr(), 1).String()
		elsewhere := got.Clone(got.Context())
		elsewhere.RemoteAddr = "192.0.2.1:1234"
		elsewhere.Header.Set(includeHeader, "1") // anybody can send that
		if CameFromHere(other) || CameFromHere(elsewhere) {
			t.Errorf("%s: another process's request came from here", listen)
		}
		if !here && runtime.GOOS == "linux" {
			t.Errorf("%s: a request of this process did not come from here", listen)
		}
		server.Close()
	}
	included := httptest.NewRequestWithContext(context.Background(), "GET", "/", nil)
	included.RemoteAddr = "127.0.0.1:10000"
	if CameFromHere(included) {
		t.Error("a request without a connection came from here")
	}
	included.Header.Set(includeHeader, "1")
	if !CameFromHere(included) {
		t.Error("an included request did not come from here")
	}
}
