package testprocess

import (
	"net"
	"testing"
)

// A server can listen at its address, end, and listen there again, and nobody else gets the port.
func TestFreeAddr(t *testing.T) {
	addr := FreeAddr(t)
	for range 100 {
		server, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = server.Close()
		if other := FreeAddr(t); other == addr {
			t.Fatalf("%s is given twice", addr)
		}
	}
}
