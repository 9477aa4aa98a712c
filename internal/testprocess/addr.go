package testprocess

import "testing"

// FreeAddr returns an address of this machine that is for one server until the end of the tests.
// Nothing listens there at the moment, and other tests' processes do not get it.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := reserve()
	if err != nil {
		t.Fatalf("looking for a free port: %v", err)
	}
	return addr
}
