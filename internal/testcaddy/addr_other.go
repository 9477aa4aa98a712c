//go:build !unix || aix || solaris

package testcaddy

import "testing"

// ReserveAddr is an address of this machine that nobody listens on right now.
func ReserveAddr(t testing.TB) string { return FreeAddr(t) }
