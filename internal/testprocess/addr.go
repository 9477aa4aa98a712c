package testprocess

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

var ports atomic.Int64 // how many were tried

// FreeAddr returns an address of this machine that is for one server until the end of the tests. Nothing
// listens there at the moment. Its port is none of those that systems give to outgoing connections. Other
// tests' processes begin with other ports.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+(int64(os.Getpid())*499+ports.Add(1))%20_000)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
