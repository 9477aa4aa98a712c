//go:build !linux && !darwin && !freebsd && !windows

package serializer

// networkFileSystem cannot tell on this system.
func networkFileSystem(string) string { return "" }
