//go:build unix && !aix && !solaris && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package serializer

// newChangeSignal returns nil: if inotify has no watch left, the directory is polled.
func newChangeSignal(int) changeSignal { return nil }
