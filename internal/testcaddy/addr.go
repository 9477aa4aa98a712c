package testcaddy

import (
	"net"
	"sync"
	"testing"
)

var given sync.Map // the addresses that FreeAddr has returned

// FreeAddr returns an address of this machine at which nothing listens at the moment. For
// a Caddy of this user, [ReserveAddr] is better.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("finding a free port: %v", err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		if _, loaded := given.LoadOrStore(addr, true); !loaded {
			return addr
		}
	}
}
