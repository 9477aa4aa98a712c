//go:build !linux

package testprocess

import (
	"net"
	"os/exec"
)

// endWithTest does nothing: this system has no such feature.
func endWithTest(*exec.Cmd) {}

// reserve finds an address at which nothing listens. This system keeps it for nobody.
func reserve() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
