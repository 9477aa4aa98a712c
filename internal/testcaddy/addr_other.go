//go:build !unix || aix || solaris

package testcaddy

import "testing"

// ReserveAddr returns an address of this machine at which nothing listens at the moment.
func ReserveAddr(t testing.TB) string { return FreeAddr(t) }
