package connection

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dialedHere reports whether the client's end of the connection belongs to this
// process.
func dialedHere(client netip.AddrPort) bool {
	addr := netip.AddrPortFrom(client.Addr().Unmap().WithZone(""), client.Port())
	table := "/proc/self/net/tcp"
	if addr.Addr().Is6() {
		table = "/proc/self/net/tcp6"
	}
	inode := inodeOf(table, kernelAddress(addr))
	if inode == "" {
		return false
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(file string) bool {
		target, err := os.Readlink(file)
		return err == nil && target == "socket:["+inode+"]"
	})
}

// kernelAddress formats an address as the tables in /proc do: 32-bit words in the
// machine's byte order, assumed little-endian, and the port.
func kernelAddress(addr netip.AddrPort) string {
	raw := addr.Addr().AsSlice()
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	return strings.ToUpper(hex.EncodeToString(raw)) + fmt.Sprintf(":%04X", addr.Port())
}

// inodeOf returns the inode of the socket with a local address.
func inodeOf(table, local string) string {
	f, err := os.Open(table)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == local {
			return fields[9]
		}
	}
	return ""
}
