//go:build !linux

package connection

import "net/netip"

// dialedHere returns false: it is implemented only for Linux.
func dialedHere(netip.AddrPort) bool { return false }
